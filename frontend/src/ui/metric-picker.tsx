import { useState } from "react";
import { useTranslation } from "react-i18next";
import { cx } from "@/lib/cx";

/** From so many metrics on, their names can be searched. */
const MANY_METRICS = 12;

interface MetricPickerProps {
  names: string[];
  /** In the order of selection; names that are not among `names` are shown, too. */
  chosen: string[];
  /** Returns the label of a metric; by default its name. */
  labelOf?: (name: string) => string;
  onChange: (chosen: string[]) => void;
}

/** Names of metrics to switch on and off; many can be searched. */
export function MetricPicker({ names, chosen, labelOf = (name) => name, onChange }: MetricPickerProps) {
  const { t } = useTranslation();
  const [search, setSearch] = useState("");
  const matches = (name: string) => name.toLowerCase().includes(search.toLowerCase());
  const listed = [...new Set([...names, ...chosen])].filter((name) => chosen.includes(name) || matches(name));
  const toggle = (name: string) =>
    onChange(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  return (
    <div className="space-y-2">
      {names.length >= MANY_METRICS && (
        <input
          type="search"
          aria-label={t("task.findMetrics")}
          placeholder={t("task.findMetrics")}
          className="control sm:w-64"
          value={search}
          onChange={({ target }) => setSearch(target.value)}
        />
      )}
      <div
        role="group"
        aria-label={t("task.chooseMetrics")}
        className="flex max-h-40 flex-wrap gap-1.5 overflow-y-auto"
      >
        {listed.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={chosen.includes(name)}
            onClick={() => toggle(name)}
            className={cx(
              "max-w-full truncate rounded-full border px-2.5 py-0.5 text-xs",
              chosen.includes(name)
                ? "border-accent-line/40 bg-accent-soft font-medium text-accent-ink"
                : "text-muted hover:text-ink",
            )}
          >
            {labelOf(name)}
          </button>
        ))}
      </div>
    </div>
  );
}
