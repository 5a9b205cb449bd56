import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { DELIVERIES_PAGE, deliveriesQuery } from "@/api/notices";
import type { NoticeDelivery } from "@/api/types";
import { formatDateTime, formatMeasurement } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { LoadError, Loading } from "@/ui/errors";
import { Pager } from "@/ui/pager";

const TONE = { waiting: "info", sent: "ok", failed: "bad", dropped: "idle" } as const;

/** Messages that a channel has sent or will send. */
export function Deliveries({ channel }: { channel: string }) {
  const { t } = useTranslation();
  const [page, setPage] = useState(1);
  const found = useQuery(deliveriesQuery(channel, page));
  if (found.isError) return <LoadError error={found.error} retry={() => void found.refetch()} />;
  if (found.isPending) return <Loading />;
  if (found.data.total === 0) return <p className="py-2 text-sm text-muted">{t("notices.nothingSent")}</p>;
  return (
    <>
      <ul className="space-y-3" aria-label={t("notices.log")}>
        {found.data.items.map((delivery) => (
          <li key={delivery.id}>
            <Delivery delivery={delivery} />
          </li>
        ))}
      </ul>
      <Pager
        count={t("notices.deliveries", { count: found.data.total })}
        page={page}
        pages={Math.ceil(found.data.total / DELIVERIES_PAGE)}
        onPage={setPage}
      />
    </>
  );
}

/** A message with each attempt to send it. */
export function Delivery({ delivery }: { delivery: NoticeDelivery }) {
  const { t } = useTranslation();
  return (
    <div className="text-xs">
      <div className="flex flex-wrap items-center gap-2">
        <Badge tone={TONE[delivery.outcome]}>{t(`notices.outcomeOf.${delivery.outcome}`)}</Badge>
        <span className="min-w-0 break-words">{delivery.title}</span>
        {delivery.dueAt && (
          <span className="text-muted">{t("notices.triedNext", { at: formatDateTime(delivery.dueAt) })}</span>
        )}
      </div>
      <ol className="mt-1 space-y-1 text-muted">
        {delivery.tries.map((tried) => (
          <li key={tried.at} className="break-words">
            {formatDateTime(tried.at)}
            {" · "}
            {tried.seconds === null
              ? t("notices.cutShort")
              : t("notices.seconds", { value: formatMeasurement(tried.seconds) })}
            {tried.error && <span className="block text-bad-ink">{tried.error.message}</span>}
            {tried.answer && <code className="block break-all">{tried.answer}</code>}
          </li>
        ))}
      </ol>
    </div>
  );
}
