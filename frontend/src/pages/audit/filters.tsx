import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { AUDIT_FILTERS, auditActionsQuery, type AuditFilters } from "@/api/audit";
import type { Me } from "@/api/types";
import { formatDateTimeInput } from "@/lib/dates";
import { Button } from "@/ui/button";
import { FilterSelect, SearchBox } from "@/ui/filters";

type Name = keyof AuditFilters;
const TEXTS = ["actor", "target", "token", "address"] as const;
const MOMENTS = ["begin", "end"] as const;

interface FiltersProps {
  projects: Me["projects"];
  filters: AuditFilters;
  set: (name: Name, value: string) => void;
  of: (name: Name) => { value: string; onChange: (value: string) => void };
  onClear: () => void;
}

export function Filters({ projects, filters, set, of, onClear }: FiltersProps) {
  const { t } = useTranslation();
  const actions = useQuery(auditActionsQuery()).data ?? [];
  const chosen = filters.action;
  const known = actions.map(({ action, text }): [string, string] => [action, text]);
  if (chosen && !actions.some(({ action }) => action === chosen)) known.unshift([chosen, chosen]);
  return (
    <div className="mb-3 flex flex-wrap items-end gap-2">
      <FilterSelect
        label={t("audit.project")}
        any={t("audit.anyProject")}
        options={projects.map(({ id, name }) => [id, name])}
        {...of("project")}
      />
      <FilterSelect label={t("audit.action")} any={t("audit.anyAction")} options={known} {...of("action")} />
      {TEXTS.map((name) => (
        <SearchBox
          key={name}
          narrow
          label={t(`audit.${name}`)}
          value={filters[name] ?? ""}
          onSettled={(text) => set(name, text.trim())}
        />
      ))}
      {MOMENTS.map((name) => (
        <label key={name} className="flex items-center gap-1.5 text-sm text-muted">
          {t(`audit.${name}`)}
          <input
            type="datetime-local"
            className="control w-auto"
            value={formatMoment(filters[name])}
            onChange={({ target }) => set(name, target.value && new Date(target.value).toISOString())}
          />
        </label>
      ))}
      {AUDIT_FILTERS.some((name) => filters[name]) && (
        <Button look="ghost" onClick={onClear}>
          {t("audit.clear")}
        </Button>
      )}
    </div>
  );
}

/** Returns a moment of the address as its field shows it; nothing for what is none. */
function formatMoment(text = ""): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : formatDateTimeInput(at);
}
