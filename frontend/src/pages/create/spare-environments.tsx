import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { environmentsQuery } from "@/api/inventory";
import { cx } from "@/lib/cx";
import { Button } from "@/ui/button";
import { NO_FILTER, filterEnvironments, sortEnvironments } from "./environment-filter";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";

const SHOWN = 12;

/** Environments that may replace a lost one, from the same cluster and project. They may be busy or stopped now. */
export function SpareEnvironments({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const id = useId();
  const [search, setSearch] = useState("");
  const [choosing, setChoosing] = useState(false);
  const all = useQuery(environmentsQuery).data ?? [];
  const first = all.find((each) => each.id === draft.selected[0]);
  const { spareIds } = draft;
  const error = getProblemText(problems, "spareEnvironmentIds");
  const ticked = all.filter((each) => spareIds.includes(each.id));
  const gone = spareIds.filter((spare) => !all.some((each) => each.id === spare));
  const others = all.filter(
    (each) =>
      choosing &&
      !spareIds.includes(each.id) &&
      !draft.selected.includes(each.id) &&
      (!first || (each.clusterId === first.clusterId && each.projectId === first.projectId)),
  );
  const found = sortEnvironments(filterEnvironments(others, { ...NO_FILTER, search }), "name");
  const toggle = (spare: string) =>
    onChange({
      spareIds: spareIds.includes(spare) ? spareIds.filter((each) => each !== spare) : [...spareIds, spare],
    });
  const shown = [...ticked, ...found.slice(0, SHOWN)];
  return (
    <fieldset aria-describedby={id}>
      <legend className="mb-1 text-sm font-semibold text-muted">{t("create.spares")}</legend>
      <p id={id} className={cx("mb-2 text-sm whitespace-pre-line", error ? "text-bad-ink" : "text-muted")}>
        {error ?? t("create.sparesHint")}
      </p>
      <div className="mb-2 flex flex-wrap items-center gap-2">
        <Button name="spareEnvironmentIds" size="sm" aria-expanded={choosing} onClick={() => setChoosing(!choosing)}>
          {t("create.chooseSpares")}
        </Button>
        {choosing && (
          <input
            type="search"
            aria-label={t("create.searchSpares")}
            placeholder={t("create.searchSpares")}
            className="control w-full sm:w-72"
            value={search}
            onChange={({ target }) => setSearch(target.value)}
          />
        )}
      </div>
      <div className="flex flex-wrap gap-2">
        {gone.map((spare) => (
          <Spare key={spare} ticked name={spare} about={t("create.missing")} onToggle={() => toggle(spare)} />
        ))}
        {shown.map(({ id: spare, name, zone }) => (
          <Spare
            key={spare}
            name={name}
            about={zone.name}
            ticked={spareIds.includes(spare)}
            onToggle={() => toggle(spare)}
          />
        ))}
      </div>
      {choosing && shown.length === 0 && gone.length === 0 && (
        <p className="text-sm text-muted">{t("create.noEnvironments")}</p>
      )}
      {found.length > SHOWN && <p className="mt-2 text-sm text-muted">{t("preflight.cut", { count: SHOWN })}</p>}
    </fieldset>
  );
}

interface SpareEnvironmentProps {
  name: string;
  about: string;
  ticked: boolean;
  onToggle: () => void;
}

function Spare({ name, about, ticked, onToggle }: SpareEnvironmentProps) {
  return (
    <label className="flex items-center gap-2 rounded-lg border px-2.5 py-1.5 text-sm hover:border-line-strong has-checked:border-accent-line has-checked:bg-accent-soft">
      <input type="checkbox" className="size-4 shrink-0" checked={ticked} onChange={onToggle} />
      <span className="font-medium">{name}</span>
      <span className="text-xs text-muted">{about}</span>
    </label>
  );
}
