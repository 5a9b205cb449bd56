import { useQuery } from "@tanstack/react-query";
import { CheckCircle2, Globe, TriangleAlert, X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { frameworksQuery } from "@/api/inventory";
import type { Environment, Notice, Preview } from "@/api/types";
import { formatInteger, formatMoney } from "@/lib/format";
import { describeOptimizerStep } from "@/lib/optimizer-step";
import { Badge } from "@/ui/badge";
import { Card } from "@/ui/card";
import { MessageList, type Message } from "@/ui/message-list";
import { sumEnvironments } from "./aggregate";
import { findFramework } from "./options";

interface SummaryProps {
  chosen: Environment[];
  /** Ids of selected environments that no longer exist. */
  missing: string[];
  framework: string;
  notices: Notice[];
  batch: Preview["batch"] | undefined;
  /** Nothing prevents an immediate start. */
  ready: boolean;
  onRemove: (id: string) => void;
  /** Shown instead of the selection when environments will be created. */
  made?: string | undefined;
  hourly: { amount: number | string; currency: string } | null | undefined;
}

export function Summary({ chosen, missing, framework, notices, batch, ready, onRemove, made, hourly }: SummaryProps) {
  const { t } = useTranslation();
  const frameworks = useQuery(frameworksQuery).data ?? [];
  const sum = sumEnvironments(chosen);
  const several = sum.isDistributed;
  const name = findFramework(frameworks, framework)?.label ?? framework;
  const waits = chosen.some((each) => each.heldBy);
  if (chosen.length + missing.length === 0) {
    return (
      <Card title={t("create.summary")}>
        <p className="text-sm text-muted">{t("create.nothingChosen")}</p>
      </Card>
    );
  }
  const said: (Message | false)[] = [
    several && { id: "using", level: "info", message: t("create.using", { framework: name }) },
    ready &&
      !several &&
      !waits &&
      !made &&
      chosen.length > 0 && { id: "quickStart", level: "pass", message: t("create.quickStart") },
    waits &&
      !notices.some(({ code }) => code === "ENVIRONMENTS_BUSY") && {
        id: "waits",
        level: "warn",
        message: t("create.waits"),
      },
    ...notices.map(({ code, message, hint }): Message => ({
      id: code,
      // a warning of every emulated environment is shown as a note
      level: code === "EMULATED_GPUS" ? "info" : "warn",
      message: (
        <span className="line-clamp-4" title={message}>
          {message}
        </span>
      ),
      hint,
    })),
  ];
  return (
    <Card title={t("create.summary")}>
      <p className="mb-3 flex items-center gap-2 font-medium">
        {several ? (
          <Globe aria-hidden className="size-4 text-warn-ink" />
        ) : (
          <CheckCircle2 aria-hidden className="size-4 text-ok-ink" />
        )}
        <span>{t(several ? "create.multi" : "create.single")}</span>
        {chosen.some((each) => each.emulated) && (
          <Badge tone="info" title={t("gpu.emulatedHint")}>
            {t("gpu.emulated")}
          </Badge>
        )}
      </p>
      <dl className="space-y-1 text-sm">
        {several && <Fact name={t("create.nodes")}>{t("create.nodesValue", { count: sum.nodeCount })}</Fact>}
        <Fact name={t("create.totalGpus")}>
          {t("create.gpusValue", { count: sum.totalGpus })}
          {sum.gpuTypes.length > 0 && ` (${sum.gpuTypes.join(", ")})`}
        </Fact>
        <Fact name={t("create.totalCpus")}>{t("create.cpusValue", { count: sum.totalCpus })}</Fact>
        <Fact name={t("create.totalMemory")}>{formatInteger(sum.totalMemoryGb)} GB</Fact>
        {sum.crossZone && (
          <Fact name={t("create.crossZone")}>
            <span className="inline-flex items-center gap-1 text-warn-ink">
              <TriangleAlert aria-hidden className="size-3.5" />
              {t("create.nodesValue", { count: sum.zones.length })}
            </span>
          </Fact>
        )}
        {hourly && <Fact name={t("create.perHour")}>{formatMoney(Number(hourly.amount), hourly.currency)}</Fact>}
        {describeOptimizerStep(batch, t).map(([name, value]) => (
          <Fact key={name} name={name}>
            {value}
          </Fact>
        ))}
      </dl>
      <div className="mt-3">
        <MessageList notes={said.filter((each) => each !== false)} />
      </div>
      <h3 className="mt-4 mb-1.5 text-sm font-medium">{t("create.chosen")}</h3>
      <ul className="max-h-56 space-y-1 overflow-y-auto text-sm">
        {made && <li className="break-words">{made}</li>}
        {!made &&
          chosen.map((each) => (
            <Chosen key={each.id} name={each.name} onRemove={() => onRemove(each.id)}>
              <Badge>{each.gpuCount > 0 ? `${each.gpuCount}x${each.gpuType}` : t("gpu.none")}</Badge>
            </Chosen>
          ))}
        {missing.map((id) => (
          <Chosen key={id} name={id} onRemove={() => onRemove(id)}>
            <Badge tone="bad">{t("create.missing")}</Badge>
          </Chosen>
        ))}
      </ul>
    </Card>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="flex justify-between gap-4">
      <dt className="shrink-0 text-muted">{name}</dt>
      <dd className="min-w-0 text-right font-medium break-words tabular-nums">{children}</dd>
    </div>
  );
}

function Chosen({ name, onRemove, children }: { name: string; onRemove: () => void; children: ReactNode }) {
  const { t } = useTranslation();
  return (
    <li className="flex items-center gap-2">
      <span className="min-w-0 flex-1 break-words">{name}</span>
      {children}
      <button
        type="button"
        aria-label={t("create.remove", { name })}
        className="rounded-md p-0.5 text-muted -outline-offset-2 hover:text-ink"
        onClick={onRemove}
      >
        <X className="size-3.5" />
      </button>
    </li>
  );
}
