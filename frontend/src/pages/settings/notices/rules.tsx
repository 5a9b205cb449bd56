import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { channelsQuery, deleteRule, kindsQuery, noticeKeys, rulesQuery } from "@/api/notices";
import type { Me, NoticeRule } from "@/api/types";
import { Badge } from "@/ui/badge";
import { Card } from "@/ui/card";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { RemovableRow } from "../removable-row";
import { canChange, useOwnerName } from "./owner";
import { RuleForm } from "./rule-form";
import { formatTimeOfDay } from "./rule-fields";

export function Rules({ me }: { me: Me }) {
  const { t } = useTranslation();
  const rules = useQuery(rulesQuery);
  return (
    <Card title={t("notices.rules")} aside={<RuleForm me={me} />}>
      <p className="text-sm text-muted">{t("notices.rulesHint")}</p>
      {rules.isError && <LoadError error={rules.error} retry={() => void rules.refetch()} />}
      {rules.isPending && <Loading />}
      <ul className="mt-2 divide-y text-sm" aria-label={t("notices.rules")}>
        {rules.data?.map((rule) => (
          <RuleItem key={rule.id} me={me} rule={rule} />
        ))}
      </ul>
      {rules.data?.length === 0 && <p className="py-4 text-center text-sm text-muted">{t("notices.noRules")}</p>}
    </Card>
  );
}

function RuleItem({ me, rule }: { me: Me; rule: NoticeRule }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const ownerName = useOwnerName(me);
  const channels = useQuery(channelsQuery).data ?? [];
  const remove = useMutation({
    mutationFn: () => deleteRule(rule.id),
    onError: (error: Error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: noticeKeys.rules }),
  });
  const { name, restarts, waitsSeconds, quietFrom, quietTo } = rule;
  const conditions = [
    restarts !== null && t("notices.fromRestarts", { count: restarts }),
    waitsSeconds !== null && t("notices.fromMinutes", { count: waitsSeconds / 60 }),
  ].filter(Boolean);
  const known = useQuery(kindsQuery).data ?? [];
  const titles = new Map(known.map(({ kind, title }) => [kind, title]));
  const may = canChange(me, rule);
  const kinds = rule.kinds.map((kind) => titles.get(kind) ?? kind).join(", ");
  const by = channels.filter(({ id }) => rule.channels.includes(id)).map((channel) => channel.name);
  return (
    <RemovableRow
      name={
        <>
          <span className="font-medium">{name}</span> <Badge>{ownerName(rule)}</Badge>{" "}
          {!rule.enabled && <Badge tone="warn">{t("notices.off")}</Badge>}
          <span className="block text-xs text-muted">
            {kinds || t("notices.everything")} · {t(`bell.levelOf.${rule.level}`)} → {by.join(", ") || "–"}
          </span>
          {conditions.length > 0 && <span className="block text-xs text-muted">{conditions.join(" · ")}</span>}
          {quietFrom !== null && quietTo !== null && (
            <span className="block text-xs text-muted">
              {t("notices.quietAt", {
                from: formatTimeOfDay(quietFrom),
                to: formatTimeOfDay(quietTo),
                zone: rule.timezone,
              })}
            </span>
          )}
        </>
      }
      label={t("notices.removeOf", { name })}
      title={t("notices.removeTitle", { name })}
      hint={t("notices.removeRuleHint")}
      {...(may && { remove })}
    >
      {may && <RuleForm me={me} rule={rule} />}
    </RemovableRow>
  );
}
