import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { INBOX_PER_PAGE, inboxQuery, markInboxRead } from "@/api/inbox";
import type { InboxItem } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatAge, formatDateTime } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Pager } from "@/ui/pager";

const TONE = { info: "info", warn: "warn", fail: "bad" } as const;

export default function InboxList() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [page, setPage] = useState(1);
  const inbox = useQuery(inboxQuery(page));
  const read = useMutation({ ...markInboxRead(client), onError: (error) => toastError(t, error) });
  return (
    <section aria-label={t("bell.title")} className="max-h-[70dvh] overflow-y-auto">
      <div className="flex items-center justify-between gap-2 px-1">
        <h2 className="text-sm font-semibold">{t("bell.title")}</h2>
        <Button
          look="ghost"
          size="sm"
          disabled={!inbox.data?.unread || read.isPending}
          onClick={() => read.mutate(null)}
        >
          {t("bell.readAll")}
        </Button>
      </div>
      {inbox.isError && <LoadError error={inbox.error} retry={() => void inbox.refetch()} />}
      {inbox.isPending && <Loading />}
      {inbox.data?.total === 0 && <p className="px-1 py-6 text-center text-sm text-muted">{t("bell.empty")}</p>}
      <ul className="divide-y text-sm">
        {inbox.data?.items.map((item) => (
          <InboxEntry key={item.id} item={item} onRead={() => read.mutate(item.ids)} />
        ))}
      </ul>
      {inbox.data && inbox.data.total > 0 && (
        <Pager
          count={t("bell.count", { count: inbox.data.total })}
          page={page}
          pages={Math.ceil(inbox.data.total / INBOX_PER_PAGE)}
          onPage={setPage}
        />
      )}
      <Link to="/settings/notices" className="mt-2 block px-1 text-sm text-accent-ink hover:underline">
        {t("bell.settings")}
      </Link>
    </section>
  );
}

function InboxEntry({ item, onRead }: { item: InboxItem; onRead: () => void }) {
  const { t } = useTranslation();
  const now = useNow();
  const isNew = item.readAt === null;
  const title = <span className={cx("break-words", isNew && "font-semibold")}>{item.title}</span>;
  return (
    <li className="space-y-1 px-1 py-2">
      <div className="flex items-start gap-2">
        <Badge tone={TONE[item.level]}>{t(`bell.levelOf.${item.level}`)}</Badge>
        {item.path ? (
          <Link to={item.path} className="min-w-0 flex-1 hover:underline" onClick={() => isNew && onRead()}>
            {title}
          </Link>
        ) : (
          <span className="min-w-0 flex-1">{title}</span>
        )}
      </div>
      <p className="text-xs break-words whitespace-pre-line text-muted">{item.body}</p>
      <div className="flex flex-wrap items-center gap-x-2 text-xs text-muted">
        <time dateTime={item.updatedAt} title={formatDateTime(item.updatedAt)}>
          {formatAge(item.updatedAt, now)}
        </time>
        {item.times > 1 && <span>{t("bell.times", { count: item.times })}</span>}
        {item.overAt && <Badge tone="ok">{t("bell.over")}</Badge>}
        {isNew && (
          <Button look="ghost" size="sm" className="ml-auto" onClick={onRead}>
            {t("bell.read")}
          </Button>
        )}
      </div>
    </li>
  );
}
