import { useQuery } from "@tanstack/react-query";
import { Wand2 } from "lucide-react";
import { lazy, memo, Suspense, useDeferredValue, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { environmentsQuery } from "@/api/inventory";
import type { Preview } from "@/api/types";
import { formatInteger } from "@/lib/format";
import { Badge, Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { LoadError, Loading } from "@/ui/errors";
import { ANY_CAPACITY, type CapacityRequest } from "./capacity";
import {
  NO_FILTER,
  type FilterOption,
  type EnvironmentFilter,
  filterEnvironments,
  NO_GPU,
  listFilterOptions,
  sortEnvironments,
  SORT_ORDERS,
} from "./environment-filter";
import { EnvironmentList } from "./environment-list";
import { useLabels } from "./labels";
import type { ProblemsByField } from "./problems";

const ChooseForMe = lazy(() => import("./capacity-form"));

interface EnvironmentsProps {
  selected: string[];
  master: string;
  problems: ProblemsByField;
  /** Capacity that is requested instead of the selection; the cards show the current match. */
  capacity: CapacityRequest | null;
  chosen: Preview["chosen"] | undefined;
  onToggle: (id: string) => void;
  onClear: () => void;
  onCapacity: (capacity: CapacityRequest | null) => void;
  onByName: () => void;
}

export const Environments = memo(function Environments(props: EnvironmentsProps) {
  const { selected, master, problems, capacity, chosen, onToggle, onClear, onCapacity, onByName } = props;
  const { t } = useTranslation();
  const environments = useQuery(environmentsQuery);
  const [choice, setChoice] = useState(NO_FILTER);
  const wanted = useDeferredValue(choice);
  const all = environments.data;
  const inOrder = useMemo(() => sortEnvironments(all ?? [], wanted.sort), [all, wanted.sort]);
  const shown = useMemo(() => filterEnvironments(inOrder, wanted), [inOrder, wanted]);
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
          <Callout tone="bad">{wrong.map((problem) => problem.message).join(" ")}</Callout>
        </div>
      )}
      {environments.isError && <LoadError error={environments.error} retry={() => void environments.refetch()} />}
      {environments.isPending && <Loading />}
      {all && (
        <p className="mb-2 text-sm text-muted" role="status">
          {shown.length === 0
            ? t("create.noEnvironments")
            : t("create.shown", { shown: formatInteger(shown.length), count: all.length })}
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

function Filters({ choice, onChange }: { choice: FilterOption; onChange: (choice: FilterOption) => void }) {
  const { t } = useTranslation();
  const labels = useLabels();
  const all = useQuery(environmentsQuery).data;
  const values = useMemo(() => listFilterOptions(all ?? []), [all]);
  const name: Record<EnvironmentFilter, (value: string, name: string) => string> = {
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
        onChange={({ target }) => onChange({ ...choice, sort: target.value as FilterOption["sort"] })}
      >
        {SORT_ORDERS.map((sort) => (
          <option key={sort} value={sort}>
            {t(`create.sortBy.${sort}`)}
          </option>
        ))}
      </select>
      {isFiltered && (
        <Button look="ghost" onClick={() => onChange({ ...NO_FILTER, sort: choice.sort })}>
          {t("create.clearFilters")}
        </Button>
      )}
    </div>
  );
}

const FILTERS = ["zone", "status", "gpuType", "kind"] as const;
