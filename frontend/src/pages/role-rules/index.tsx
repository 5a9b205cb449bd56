import { useQuery } from "@tanstack/react-query";
import { Pencil, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { directoriesQuery } from "@/api/directories";
import { identityProvidersQuery } from "@/api/identity";
import { type RoleRule, roleRulesQuery } from "@/api/role-rules";
import { formatDateTime } from "@/lib/format";
import { useFilters } from "@/lib/use-filters";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { SearchBox } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { DeleteRule } from "./delete-rule";
import { splitPattern } from "./draft";
import { RuleForm } from "./rule-form";

/** The rules that give roles by groups of identity providers. Administrators only: the API refuses others. */
export function Component() {
  const { t } = useTranslation();
  const { filters, page, set } = useFilters(["search"]);
  const rules = useQuery(roleRulesQuery({ search: filters.search ?? "", page }));
  const found = rules.data;
  const add = (
    <RuleForm
      trigger={
        <Button look="primary">
          <Plus />
          {t("roleRules.add")}
        </Button>
      }
    />
  );
  return (
    <Page title={t("app.roleRules")} actions={found && add}>
      <p className="mb-3 max-w-3xl text-sm text-muted">{t("roleRules.lead")}</p>
      {rules.isError && <LoadError error={rules.error} retry={() => void rules.refetch()} />}
      {rules.isPending && <Loading />}
      {found && (found.total > 0 || filters.search) && (
        <div className="mb-3">
          <SearchBox
            label={t("roleRules.search")}
            value={filters.search ?? ""}
            onSettled={(text) => set("search", text)}
          />
        </div>
      )}
      {found?.total === 0 &&
        (filters.search ? (
          <EmptyState title={t("roleRules.noneFound")} />
        ) : (
          <EmptyState title={t("roleRules.none")} hint={t("roleRules.example")} />
        ))}
      {found && found.items.length > 0 && (
        <>
          <Table
            label={t("app.roleRules")}
            columns={[
              { label: t("roleRules.group") },
              { label: t("roleRules.provider"), className: MEDIUM_COLUMN },
              { label: t("roleRules.target") },
              { label: t("roleRules.peopleColumn"), className: "text-right" },
              { label: t("roleRules.setBy"), className: WIDE_COLUMN },
              { label: <span className="sr-only">{t("roleRules.actions")}</span> },
            ]}
          >
            {found.items.map((rule) => (
              <RuleRow key={rule.id} rule={rule} />
            ))}
          </Table>
          <Pager
            count={t("roleRules.count", { count: found.total })}
            pages={Math.ceil(found.total / found.pageSize)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

function RuleRow({ rule }: { rule: RoleRule }) {
  const { t } = useTranslation();
  const providers = useQuery(identityProvidersQuery).data ?? [];
  const directories = useQuery(directoriesQuery).data ?? [];
  const sources = [...providers, ...directories];
  const { pattern, provider, claim, peopleCount, updatedAt, updatedBy } = rule;
  const { match, group } = splitPattern(pattern);
  const label = t("roleRules.editOf", { pattern });
  return (
    <tr className={ROW}>
      <td>
        <span className="font-medium break-all">{match === "exact" ? group : t("roleRules.begins", { group })}</span>
        <span className="block font-mono text-xs break-all text-muted">{claim}</span>
      </td>
      <td className={MEDIUM_COLUMN}>
        {provider ? (sources.find(({ id }) => id === provider)?.name ?? provider) : t("roleRules.anyProvider")}
      </td>
      <td>
        <Effect rule={rule} />
      </td>
      <td className="text-right tabular-nums">{peopleCount}</td>
      <td className={WIDE_COLUMN}>
        {updatedBy ?? "–"}
        <span className="block text-muted">{formatDateTime(updatedAt)}</span>
      </td>
      <td className="w-px whitespace-nowrap">
        <RuleForm
          rule={rule}
          trigger={
            <Button look="ghost" size="icon" aria-label={label} title={label}>
              <Pencil />
            </Button>
          }
        />
        <DeleteRule rule={rule} />
      </td>
    </tr>
  );
}

function Effect({ rule }: { rule: RoleRule }) {
  const { t } = useTranslation();
  if (rule.administrator) return <Badge tone="accent">{t("roleRules.administrator")}</Badge>;
  const role = t(`settings.roleOf.${rule.role as "viewer" | "member" | "maintainer"}`);
  return (
    <>
      <span className="break-words">{rule.createProject ? t("roleRules.ownProject") : rule.projectName}</span>{" "}
      <span className="text-muted">{role}</span>
    </>
  );
}
