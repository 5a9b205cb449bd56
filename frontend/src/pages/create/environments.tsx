import { useQuery } from "@tanstack/react-query";
import { Wand2 } from "lucide-react";
import { lazy, memo, Suspense, useDeferredValue, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { environmentsQuery } from "@/api/inventory";
import type { Preview } from "@/api/types";
import { integer } from "@/lib/format";
import { Badge, Note } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { Failure, Loading } from "@/ui/failure";
import { ANY_CAPACITY, type Capacity } from "./capacity";
import { ANYTHING, type Choice, type Filter, matching, NO_GPU, offered, sorted, SORTS } from "./choice";
import { EnvironmentList } from "./environment-list";
import { useLabels } from "./labels";
import type { ProblemsByField } from "./problems";

const ChooseForMe = lazy(() => import("./choose-for-me"));

interface EnvironmentsProps {
  selected: string[];
  master: string;
  problems: ProblemsByField;
  /** What is asked for in place of the ticked ones; the cards show what would be chosen now. */
  capacity: Capacity | null;
  chosen: Preview["chosen"] | undefined;
  onToggle: (id: string) => void;
  onClear: () => void;
  onCapacity: (capacity: Capacity | null) => void;
  onByName: () => void;
}

export const Environments = memo(function Environments(props: EnvironmentsProps) {
  const { selected, master, problems, capacity, chosen, onToggle, onClear, onCapacity, onByName } = props;
  const { t } = useTranslation();
  const environments = useQuery(environmentsQuery);
  const [choice, setChoice] = useState(ANYTHING);
  const wanted = useDeferredValue(choice);
  const all = environments.data;
  const inOrder = useMemo(() => sorted(all ?? [], wanted.sort), [all, wanted.sort]);
  const shown = useMemo(() => matching(inOrder, wanted), [inOrder, wanted]);
  const wrong = problems.get("environments");
  return (
    <Card
      title={t("create.environments")}
      aside={
        <div className="flex items-center gap-1">
          <Button
            look={capacity ? "primary" : "ghost"}
            size="sm"
            aria-pressed={capacity !== null}
            onClick={() => onCapacity(capacity ? null : ANY_CAPACITY)}
          >
            <Wand2 />
            {t("create.select.title")}
          </Button>
          {selected.length > 0 && !capacity && (
            <Button look="ghost" size="sm" onClick={onClear}>
              {t("create.clearSelected")}
            </Button>
          )}
          <span role="status">
            <Badge tone="accent">{t("create.selected", { count: selected.length })}</Badge>
          </span>
        </div>
      }
    >
      {capacity && (
        <Suspense fallback={<Loading />}>
          <ChooseForMe
            capacity={capacity}
            chosen={chosen}
            problems={problems}
            onChange={onCapacity}
            onTake={onByName}
          />
        </Suspense>
      )}
      <Filters choice={choice} onChange={setChoice} />
      {wrong && (
        <div className="mb-3">
          <Note tone="bad">{wrong.map((problem) => problem.message).join(" ")}</Note>
        </div>
      )}
      {environments.isError && <Failure error={environments.error} retry={() => void environments.refetch()} />}
      {environments.isPending && <Loading />}
      {all && (
        <p className="mb-2 text-sm text-muted" role="status">
          {shown.length === 0
            ? t("create.noEnvironments")
            : t("create.shown", { shown: integer(shown.length), count: all.length })}
        </p>
      )}
      {shown.length > 0 && (
        <EnvironmentList
          environments={shown}
          selected={selected}
          master={master}
          problems={problems}
          onToggle={onToggle}
        />
      )}
    </Card>
  );
});

function Filters({ choice, onChange }: { choice: Choice; onChange: (choice: Choice) => void }) {
  const { t } = useTranslation();
  const labels = useLabels();
  const all = useQuery(environmentsQuery).data;
  const values = useMemo(() => offered(all ?? []), [all]);
  const name: Record<Filter, (value: string, name: string) => string> = {
    zone: (_, zone) => zone,
    status: labels.status,
    gpuType: (value, type) => (value === NO_GPU ? t("gpu.none") : type),
    kind: labels.kind,
  };
  const isFiltered = choice.search !== "" || FILTERS.some((filter) => choice[filter] !== "");
  return (
    <div className="mb-3 grid grid-cols-2 gap-2 sm:flex sm:flex-wrap">
      <input
        type="search"
        name="environments"
        aria-label={t("create.search")}
        placeholder={t("create.search")}
        className="control col-span-2 sm:w-auto sm:min-w-44 sm:flex-1"
        value={choice.search}
        onChange={({ target }) => onChange({ ...choice, search: target.value })}
      />
      {FILTERS.map((filter) => (
        <select
          key={filter}
          aria-label={t(`create.filter.${filter}`)}
          className="control sm:w-auto sm:max-w-40"
          value={choice[filter]}
          onChange={({ target }) => onChange({ ...choice, [filter]: target.value })}
        >
          <option value="">{t(`create.any.${filter}`)}</option>
          {values[filter].map(([value, text]) => (
            <option key={value} value={value}>
              {name[filter](value, text)}
            </option>
          ))}
        </select>
      ))}
      <select
        aria-label={t("create.sort")}
        className="control col-span-2 sm:w-auto"
        value={choice.sort}
        onChange={({ target }) => onChange({ ...choice, sort: target.value as Choice["sort"] })}
      >
        {SORTS.map((sort) => (
          <option key={sort} value={sort}>
            {t(`create.sortBy.${sort}`)}
          </option>
        ))}
      </select>
      {isFiltered && (
        <Button look="ghost" onClick={() => onChange({ ...ANYTHING, sort: choice.sort })}>
          {t("create.clearFilters")}
        </Button>
      )}
    </div>
  );
}

const FILTERS = ["zone", "status", "gpuType", "kind"] as const;
