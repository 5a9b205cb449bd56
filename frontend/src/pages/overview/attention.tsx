import { useQuery } from "@tanstack/react-query";
import { Info, TriangleAlert, X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { ATTENTION_PER_PAGE, attentionQuery } from "@/api/overview";
import type { Attention as Found, AttentionKind } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatAge, formatInteger } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Card } from "@/ui/card";
import { LoadError, Loading } from "@/ui/errors";
import { Pager } from "@/ui/pager";

type Item = Found["items"][number];

const ICON: Record<Item["level"], ReactNode> = {
  fail: <X aria-hidden className="size-4 text-bad-ink" />,
  warn: <TriangleAlert aria-hidden className="size-4 text-warn-ink" />,
  info: <Info aria-hidden className="size-4 text-muted" />,
};

interface AttentionProps {
  address: {
    filters: { project?: string; kind?: string };
    page: number;
    set: (name: "kind" | "page", value: string) => void;
  };
  className?: string;
  /** Only the user's own tasks. */
  mine?: boolean;
}

/** What needs attention, by kind, with pages. */
export function Attention({ address: { filters, page, set }, className, mine }: AttentionProps) {
  const { t } = useTranslation();
  const kind = filters.kind as AttentionKind | undefined;
  const found = useQuery(
    attentionQuery({
      page,
      ...(filters.project && { project: filters.project }),
      ...(kind && { kind: [kind] }),
      ...(mine && { mine }),
    }),
  );
  const { data } = found;
  const all = data?.kinds.reduce((sum, { count }) => sum + count, 0) ?? 0;
  return (
    <Card
      title={t("overview.attention")}
      aside={data && <span className="text-sm text-muted tabular-nums">{t("overview.entries", { count: all })}</span>}
      {...(className && { className })}
    >
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {data && all === 0 && <p className="py-8 text-center text-sm text-muted">{t("overview.allWell")}</p>}
      {data && all > 0 && (
        <>
          <div role="group" aria-label={t("overview.kinds")} className="mb-3 flex flex-wrap gap-1.5">
            {data.kinds.map((each) => (
              <button
                key={each.kind}
                type="button"
                aria-pressed={each.kind === kind}
                onClick={() => set("kind", each.kind === kind ? "" : each.kind)}
                className={cx(
                  "inline-flex items-center gap-1.5 rounded-full border px-2.5 py-0.5 text-xs font-medium",
                  each.kind === kind ? "border-accent-line bg-accent-soft text-accent-ink" : "hover:bg-sunken",
                )}
              >
                {ICON[each.level]}
                {t(`overview.kind.${each.kind}`)}
                <span className="text-muted tabular-nums">{formatInteger(each.count)}</span>
              </button>
            ))}
          </div>
          <ul aria-label={t("overview.attention")} className="divide-y border-y">
            {data.items.map((item) => (
              <Entry key={`${item.kind} ${item.subject.id}`} item={item} />
            ))}
          </ul>
          <Pager
            count={t("overview.entries", { count: data.total })}
            pages={Math.ceil(data.total / ATTENTION_PER_PAGE)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Card>
  );
}

function Entry({ item }: { item: Item }) {
  const { t } = useTranslation();
  const now = useNow(item.since !== null);
  const name = <span className="font-medium break-all">{item.subject.name}</span>;
  return (
    <li className="grid grid-cols-[auto_1fr_auto] items-baseline gap-x-3 py-1.5 text-sm">
      <span className="self-center" title={t(`overview.kind.${item.kind}`)}>
        {ICON[item.level]}
        <span className="sr-only">{t(`overview.kind.${item.kind}`)}</span>
      </span>
      <div className="min-w-0 sm:flex sm:items-baseline sm:gap-2">
        <span className="sm:max-w-56 sm:shrink-0 sm:truncate">
          <Subject path={item.path}>{name}</Subject>
        </span>
        <span className="min-w-0 text-muted max-sm:line-clamp-2 sm:truncate" title={`${item.message} ${item.hint}`}>
          {item.message || t(`overview.kind.${item.kind}`)}
          {item.holder && (
            <Link to={`/training/${item.holder.taskId}`} className="ml-1.5 text-accent-ink hover:underline">
              {item.holder.name}
            </Link>
          )}
        </span>
      </div>
      <time dateTime={item.since ?? undefined} className="shrink-0 text-xs whitespace-nowrap text-muted tabular-nums">
        {item.since && formatAge(item.since, now)}
      </time>
    </li>
  );
}

/** A link, unless the subject is in the operators' console. */
function Subject({ path, children }: { path: string | null; children: ReactNode }) {
  const look = "hover:text-accent-ink hover:underline";
  if (!path) return children;
  return path.startsWith("/admin/") ? (
    <a href={path} className={look}>
      {children}
    </a>
  ) : (
    <Link to={path} className={look}>
      {children}
    </Link>
  );
}
