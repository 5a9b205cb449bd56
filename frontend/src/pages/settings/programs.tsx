import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { endGrant, type Grant, grantKeys, grantsQuery } from "@/api/oauth";
import type { Me } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Card } from "@/ui/card";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { TokenRow } from "@/ui/token-row";

/** The programs to which the user has granted access. */
export function Programs({ me }: { me: Me }) {
  const { t } = useTranslation();
  const grants = useQuery(grantsQuery);
  return (
    <Card title={t("programs.title")}>
      <p className="text-sm text-muted">{t("programs.hint")}</p>
      {grants.isError && <LoadError error={grants.error} retry={() => void grants.refetch()} />}
      {grants.isPending && <Loading />}
      <ul className="mt-2 divide-y text-sm" aria-label={t("programs.title")}>
        {grants.data?.map((grant) => (
          <Program key={grant.id} me={me} grant={grant} />
        ))}
      </ul>
      {grants.data?.length === 0 && <p className="py-4 text-center text-sm text-muted">{t("programs.none")}</p>}
    </Card>
  );
}

function Program({ me, grant }: { me: Me; grant: Grant }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const end = useMutation({
    mutationFn: () => endGrant(grant.id),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: grantKeys.grants }),
  });
  return (
    <TokenRow
      name={grant.client}
      facts={<Facts me={me} grant={grant} />}
      title={t("programs.endTitle", { name: grant.client })}
      hint={t("programs.endHint")}
      revoke={end}
    />
  );
}

function Facts({ me, grant }: { me: Me; grant: Grant }) {
  const { t } = useTranslation();
  const { scopes, projects, createdAt, expiresAt, lastUsedAt, lastUsedFrom, refreshedAt } = grant;
  const names = projects?.map((id) => me.projects.find((project) => project.id === id)?.name ?? id);
  const used = lastUsedAt ?? refreshedAt;
  return (
    <>
      <span className="block">
        {t("programs.since", { time: formatDateTime(createdAt) })} ·{" "}
        {t("settings.expiresAt", { time: formatDateTime(expiresAt) })} ·{" "}
        {used
          ? t("apiTokens.lastUsed", { time: formatDateTime(used), address: lastUsedFrom || "–" })
          : t("apiTokens.neverUsed")}
      </span>
      <span className="block break-words">
        {scopes ? (
          <span className="font-mono text-xs">{scopes.join(" ") || t("apiTokens.noScopes")}</span>
        ) : (
          t("apiTokens.preset.everything")
        )}
        {names && <> · {t("apiTokens.onlyIn", { projects: names.join(", ") })}</>}
      </span>
    </>
  );
}
