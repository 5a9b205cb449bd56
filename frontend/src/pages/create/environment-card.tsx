import { Clock, Cpu, Layers, MapPin } from "lucide-react";
import { type KeyboardEvent, memo, type ReactNode, useId } from "react";
import { useTranslation } from "react-i18next";
import type { Environment } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatDuration } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { EnvironmentBadges } from "@/ui/environment-badges";
import { GpuSummary } from "@/ui/gpu-summary";
import { useLabels } from "./labels";

interface EnvironmentCardProps {
  /** The name of the task that uses it. */
  holder: string;
  environment: Environment;
  index: number;
  ticked: boolean;
  master: boolean;
  problem: string | undefined;
  onToggle: (id: string) => void;
  onArrow: (event: KeyboardEvent, index: number) => void;
  onFocus: (index: number) => void;
}

/**
 * A card that is the label of its checkbox. An unavailable environment's box is not `disabled`, so that the keyboard
 * and screen readers reach it and the reason.
 */
export const EnvironmentCard = memo(function EnvironmentCard(props: EnvironmentCardProps) {
  const { environment, holder, index, ticked, master, problem, onToggle, onArrow, onFocus } = props;
  const { t } = useTranslation();
  const labels = useLabels();
  const id = useId();
  const { name, kind, zone, stack, uptimeSeconds, selectable, notSelectableReason, heldBy } = environment;
  const fixed = !selectable && !ticked;
  return (
    <label
      className={cx(
        "flex h-full items-start gap-3 rounded-lg border-2 p-3 transition-colors",
        problem ? "border-bad" : ticked ? "border-accent-line" : !fixed && "hover:border-line-strong",
        ticked ? "bg-accent-soft" : fixed && "cursor-not-allowed! bg-sunken",
        "has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent-line",
      )}
    >
      <input
        type="checkbox"
        name={`environments.${environment.id}`}
        data-place={index}
        className={cx("mt-0.5 size-4 shrink-0 outline-none", fixed && "cursor-not-allowed! opacity-50")}
        checked={ticked}
        aria-disabled={fixed || undefined}
        aria-invalid={problem ? true : undefined}
        aria-labelledby={`${id}-name`}
        aria-describedby={`${id}-facts`}
        onChange={() => !fixed && onToggle(environment.id)}
        onKeyDown={(event) => onArrow(event, index)}
        onFocus={() => onFocus(index)}
      />
      <span className="min-w-0 flex-1 space-y-1.5">
        <span className="flex flex-wrap items-center justify-between gap-1.5">
          <span id={`${id}-name`} className="min-w-0 font-medium break-words">
            {name}
          </span>
          {master && <Badge tone="warn">{t("create.master")}</Badge>}
        </span>
        <span id={`${id}-facts`} className="block space-y-1.5">
          <span className="flex flex-wrap gap-1.5">
            <Badge tone={ticked ? "accent" : "idle"}>{labels.kind(kind)}</Badge>
            <EnvironmentBadges environment={environment} />
          </span>
          <span className="grid grid-cols-[minmax(min-content,1fr)_minmax(0,1fr)] gap-x-3 gap-y-1 text-sm text-muted">
            <Fact icon={<MapPin />} what={t("create.zone")}>
              {zone.name}
            </Fact>
            <Fact icon={<Layers />} what={t("create.stack")}>
              {stack || "–"}
            </Fact>
            <Fact icon={<Cpu />} what="GPU">
              <GpuSummary type={environment.gpuType} count={environment.gpuCount} emulated={environment.emulated} />
            </Fact>
            {uptimeSeconds != null && (
              <Fact icon={<Clock />} what={t("create.uptime")}>
                {formatDuration(t, uptimeSeconds)}
              </Fact>
            )}
          </span>
          {notSelectableReason && <span className="block text-sm text-warn-ink">{notSelectableReason.message}</span>}
          {selectable && heldBy && (
            <span className="block text-sm text-warn-ink">{t("create.heldBy", { task: holder })}</span>
          )}
          {problem && <span className="block text-sm whitespace-pre-line text-bad-ink">{problem}</span>}
        </span>
      </span>
    </label>
  );
});

function Fact({ icon, what, children }: { icon: ReactNode; what: string; children: ReactNode }) {
  return (
    <span className="inline-flex min-w-0 items-center gap-1 [&>svg]:size-3.5 [&>svg]:shrink-0">
      {icon}
      <span className="sr-only">{what}</span>
      <span className="min-w-0 break-words">{children}</span>
    </span>
  );
}
