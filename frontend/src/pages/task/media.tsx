import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useId, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { buildMediaUrl, mediaFileQuery, type MediaItem, mediaQuery } from "@/api/media";
import { isFinished } from "@/api/tasks";
import type { Task } from "@/api/types";
import { formatInteger } from "@/lib/format";
import { Button, ButtonAnchor } from "@/ui/button";
import { Card } from "@/ui/card";
import { Loading } from "@/ui/errors";
import { MediaContent } from "./media-content";
import { getSourceLabel } from "./sources";

const SHOWN_AT_FIRST = 6;
/** From so many on, their names can be searched. */
const MANY = 8;

interface Medium {
  name: string;
  kind: MediaItem["kind"];
  source: string;
  items: MediaItem[];
}

/** Images, texts, tables and histograms that the script logged, if any: one box for each name, with its steps. */
export default function Media({ task }: { task: Task }) {
  const { t } = useTranslation();
  const { data: items = [] } = useQuery(mediaQuery(task.taskId, !isFinished(task)));
  const media = useMemo(() => groupByName(items), [items]);
  const [search, setSearch] = useState("");
  const [all, setAll] = useState(false);
  if (media.length === 0) return null;
  const found = media.filter(({ name }) => name.toLowerCase().includes(search.toLowerCase()));
  const shown = all ? found : found.slice(0, SHOWN_AT_FIRST);
  return (
    <Card
      title={t("media.title")}
      aside={
        media.length >= MANY && (
          <input
            type="search"
            aria-label={t("media.find")}
            placeholder={t("media.find")}
            className="control sm:w-64"
            value={search}
            onChange={({ target }) => setSearch(target.value)}
          />
        )
      }
    >
      {found.length === 0 && <p className="py-8 text-center text-sm text-muted">{t("media.noMatch")}</p>}
      <div className="grid gap-4 sm:grid-cols-2">
        {shown.map((medium) => (
          <Figure key={`${medium.kind} ${medium.name}`} task={task.taskId} medium={medium} />
        ))}
      </div>
      {found.length > shown.length && (
        <div className="mt-3 text-center">
          <Button size="sm" onClick={() => setAll(true)}>
            {t("media.more", { count: found.length - shown.length })}
          </Button>
        </div>
      )}
    </Card>
  );
}

function Figure({ task, medium }: { task: string; medium: Medium }) {
  const { t } = useTranslation();
  const id = useId();
  const { items, name, kind, source } = medium;
  /** The step that was chosen; the newest follows. */
  const [chosen, setChosen] = useState<number>();
  const at =
    chosen === undefined
      ? items.length - 1
      : Math.max(
          0,
          items.findLastIndex(({ step }) => step <= chosen),
        );
  const item = items[at];
  const file = useQuery({ ...mediaFileQuery(task, item?.path ?? ""), enabled: item !== undefined });
  if (!item) return null;
  const step = t("media.step", { step: formatInteger(item.step) });
  return (
    <figure aria-labelledby={id} className="min-w-0 space-y-2 rounded-lg border p-3">
      <figcaption id={id} className="flex flex-wrap items-baseline gap-x-2 text-sm">
        <span className="min-w-0 font-medium break-all">{name}</span>
        <span className="text-xs text-muted">
          {t(`media.kind.${kind}`)} · {t("task.curveSource", { sources: getSourceLabel(t, source) })}
        </span>
      </figcaption>
      {file.isPending ? (
        <Loading />
      ) : file.isError ? (
        <p className="py-6 text-center text-sm text-muted">{t("media.unreadable")}</p>
      ) : file.data ? (
        <MediaContent key={item.path} kind={kind} file={file.data} path={item.path} label={`${name}, ${step}`} />
      ) : (
        <p className="py-6 text-center text-sm text-muted">{t("media.tooLarge")}</p>
      )}
      <div className="flex items-center gap-2 text-xs text-muted">
        {items.length > 1 && (
          <input
            type="range"
            aria-label={t("media.stepOf", { name })}
            aria-valuetext={step}
            min={0}
            max={items.length - 1}
            value={at}
            className="min-w-0 flex-1 accent-accent"
            onChange={({ target }) => {
              const to = Number(target.value);
              setChosen(to === items.length - 1 ? undefined : items[to]?.step);
            }}
          />
        )}
        <span className="tabular-nums">{step}</span>
        <ButtonAnchor
          size="icon"
          look="ghost"
          className="ml-auto"
          href={buildMediaUrl(task, item.path)}
          aria-label={t("media.download", { name })}
          download
        >
          <Download />
        </ButtonAnchor>
      </div>
    </figure>
  );
}

/** Returns one entry for each kind and name, in the order of appearance, with its items by step. */
function groupByName(items: MediaItem[]): Medium[] {
  const groups = new Map<string, Medium>();
  for (const item of items) {
    const key = `${item.kind} ${item.name}`;
    const group = groups.get(key);
    if (group) group.items.push(item);
    else groups.set(key, { name: item.name, kind: item.kind, source: item.source, items: [item] });
  }
  return [...groups.values()];
}
