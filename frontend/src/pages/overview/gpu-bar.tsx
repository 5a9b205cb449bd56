import { useTranslation } from "react-i18next";
import type { GpuCounts } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatInteger } from "@/lib/format";
import { STATE_COLORS, listStatesPresent } from "./gpu-states";

/** A bar of GPU states. Its length is relative to `most`; the states are also given as text. */
export function GpuBar({ tally, name, most = tally.total, thick }: GpuBarProps) {
  const { t } = useTranslation();
  const states = listStatesPresent(tally);
  const message = states
    .map((state) => `${t(`overview.gpu.${state}`)} ${formatInteger(tally[state])}`)
    .join(t("queue.comma"));
  return (
    <div
      role="img"
      aria-label={`${name}: ${message}`}
      title={message}
      className={cx("flex w-full gap-px overflow-hidden rounded bg-sunken", thick ? "h-4" : "h-2.5")}
    >
      {states.map((state) => (
        <span
          key={state}
          className={cx("h-full min-w-px", STATE_COLORS[state])}
          style={{ width: `${(tally[state] / Math.max(most, 1)) * 100}%` }}
        />
      ))}
    </div>
  );
}

interface GpuBarProps {
  tally: GpuCounts;
  name: string;
  most?: number;
  thick?: boolean;
}
