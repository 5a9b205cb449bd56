import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { canReadEvents, meQuery } from "@/api/session";
import type { Token } from "@/api/types";
import { buildAuditAddress } from "@/lib/audit-address";
import { formatDateTime } from "@/lib/format";
import { TextLink } from "@/ui/text-link";
import { findPreset } from "./token-scopes";

const SHOWN = 4;

/** When a token ends, when and from where it was used last, and what it may do. */
export function TokenFacts({ token, projects }: { token: Token; projects: readonly { id: string; name: string }[] }) {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const names = token.projects?.map((id) => projects.find((project) => project.id === id)?.name ?? id);
  return (
    <>
      <span className="block">
        {t("settings.createdAt", { time: formatDateTime(token.createdAt) })} ·{" "}
        {token.expiresAt
          ? t("settings.expiresAt", { time: formatDateTime(token.expiresAt) })
          : t("settings.neverExpires")}{" "}
        ·{" "}
        {token.lastUsedAt
          ? t("apiTokens.lastUsed", { time: formatDateTime(token.lastUsedAt), address: token.lastUsedFrom || "–" })
          : t("apiTokens.neverUsed")}
        {canReadEvents(me) && (
          <>
            {" "}
            · <TextLink to={buildAuditAddress({ token: token.id })}>{t("audit.events")}</TextLink>
          </>
        )}
      </span>
      <span className="block break-words" title={token.scopes?.join(" ")}>
        <Rights scopes={token.scopes} />
        {names && <> · {t("apiTokens.onlyIn", { projects: names.join(", ") })}</>}
        {token.tasks && <> · {t("apiTokens.onlyTasks", { count: token.tasks.length })}</>}
      </span>
    </>
  );
}

function Rights({ scopes }: { scopes: string[] | null }) {
  const { t } = useTranslation();
  if (!scopes) return t("apiTokens.preset.everything");
  const preset = findPreset(scopes);
  if (preset) return t(`apiTokens.preset.${preset}`);
  if (scopes.length === 0) return t("apiTokens.noScopes");
  const rest = scopes.length - SHOWN;
  return (
    <>
      <span className="font-mono text-xs">{scopes.slice(0, SHOWN).join(" ")}</span>
      {rest > 0 && ` ${t("apiTokens.more", { count: rest })}`}
    </>
  );
}
