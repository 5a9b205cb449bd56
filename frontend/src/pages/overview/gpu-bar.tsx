import { useTranslation } from "react-i18next";
import type { GpuTally } from "@/api/types";
import { cx } from "@/lib/cx";
import { integer } from "@/lib/format";
import { FILL, present } from "./share";

/** As long as its GPUs are of `most`. What its colours mean is also said. */
export function GpuBar({ tally, name, most = tally.total, thick }: GpuBarProps) {
  const { t } = useTranslation();
  const states = present(tally);
  const said = states.map((state) => `${t(`overview.gpu.${state}`)} ${integer(tally[state])}`).join(t("queue.comma"));
  return (
    <div
      role="img"
      aria-label={`${name}: ${said}`}
      title={said}
      className={cx("flex w-full gap-px overflow-hidden rounded bg-sunken", thick ? "h-4" : "h-2.5")}
    >
      {states.map((state) => (
        <span
          key={state}
          className={cx("h-full min-w-px", FILL[state])}
          style={{ width: `${(tally[state] / Math.max(most, 1)) * 100}%` }}
        />
      ))}
    </div>
  );
}

interface GpuBarProps {
  tally: GpuTally;
  name: string;
  most?: number;
  thick?: boolean;
}
