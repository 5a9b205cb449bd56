import { SlidersHorizontal } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { cx } from "@/lib/cx";
import { MAX_NUMBERS, parseNumberRanges } from "@/lib/number-ranges";
import { Button } from "@/ui/button";
import { Popup } from "@/ui/popup";
import type { useVisiblePanels } from "./use-chart-url-state";
import type { PanelId } from "./metrics";

interface Props {
  ids: PanelId[];
  charts: ReturnType<typeof useVisiblePanels>;
  /** Controls for nodes and ranks, if there are several. */
  children?: React.ReactNode;
}

/** Selects charts, nodes and ranks. */
export function ChartSelector({ ids, charts: { panels, toggle, reset }, children }: Props) {
  const { t } = useTranslation();
  return (
    <Popup wide label={t("machines.choose")} icon={<SlidersHorizontal aria-hidden />}>
      <div className="max-h-[70vh] space-y-3 overflow-y-auto p-1">
        {children}
        <div role="group" aria-label={t("machines.charts")} className="flex flex-wrap gap-1.5">
          {ids.map((id) => (
            <button
              key={id}
              type="button"
              aria-pressed={panels.includes(id)}
              onClick={() => toggle(id)}
              className={cx(
                "rounded-full border px-2.5 py-0.5 text-xs",
                panels.includes(id)
                  ? "border-accent-line/40 bg-accent-soft font-medium text-accent-ink"
                  : "text-muted hover:text-ink",
              )}
            >
              {t(`machines.panel.${id}`)}
            </button>
          ))}
        </div>
        {reset && <Button onClick={reset}>{t("machines.reset")}</Button>}
      </div>
    </Popup>
  );
}

interface NumbersProps {
  label: string;
  value: string;
  /** The number of nodes or ranks. */
  count: number;
  onChange: (text: string) => void;
}

/** A field for numbers such as `0-7,12`; empty: all. */
export function NumberRangeField({ label, value, count, onChange }: NumbersProps) {
  const { t } = useTranslation();
  const [text, setText] = useState(value);
  const wrong = parseNumberRanges(text, count) === undefined;
  return (
    <div className="text-sm">
      <label>
        <span className="text-muted">{label}</span>
        <input
          className="control mt-1"
          inputMode="numeric"
          placeholder={t("machines.allOf", { last: count - 1 })}
          aria-invalid={wrong || undefined}
          value={text}
          onChange={({ target }) => {
            setText(target.value);
            if (parseNumberRanges(target.value, count) !== undefined) onChange(target.value.trim());
          }}
        />
      </label>
      {wrong && (
        <span role="alert" className="text-xs text-bad-ink">
          {t("machines.wrongNumbers", { last: count - 1, most: MAX_NUMBERS })}
        </span>
      )}
    </div>
  );
}
