import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { auditStreamQuery } from "@/api/policies";
import { formatDateTime } from "@/lib/format";
import { Badge, Callout } from "@/ui/badge";
import { Card } from "@/ui/card";
import { LoadError, Loading } from "@/ui/errors";
import { DefinitionList } from "@/ui/table";

/** Where the audit trail is sent to, and how far each receiver has come. */
export function AuditStream() {
  const { t } = useTranslation();
  const stream = useQuery(auditStreamQuery);
  return (
    <Card title={t("auditStream.title")}>
      <p className="text-sm text-muted">{t("auditStream.lead")}</p>
      {stream.isError && <LoadError error={stream.error} retry={() => void stream.refetch()} />}
      {stream.isPending && <Loading />}
      {stream.data?.receivers.length === 0 && <p className="mt-3 text-sm">{t("auditStream.none")}</p>}
      <ul className="divide-y">
        {stream.data?.receivers.map((one) => (
          <li key={one.name} className="space-y-2 py-3">
            <div className="flex flex-wrap items-center gap-2 text-sm">
              <span className="font-medium">{one.name}</span>
              <span className="break-all">{one.address}</span>
              <Badge tone={one.failures > 0 ? "bad" : one.eventsBehind > 0 ? "warn" : "ok"}>
                {t(
                  one.failures > 0
                    ? "auditStream.failing"
                    : one.eventsBehind > 0
                      ? "auditStream.behind"
                      : "auditStream.current",
                )}
              </Badge>
            </div>
            {one.problem && <Callout tone="bad">{one.problem}</Callout>}
            <DefinitionList
              facts={[
                [t("auditStream.events"), String(one.eventsBehind)],
                [t("auditStream.sentAt"), one.sentAt ? formatDateTime(one.sentAt) : "–"],
                [t("auditStream.failingSince"), one.failingSince ? formatDateTime(one.failingSince) : "–"],
                [t("auditStream.nextTryAt"), one.nextTryAt ? formatDateTime(one.nextTryAt) : "–"],
              ]}
            />
          </li>
        ))}
      </ul>
    </Card>
  );
}
