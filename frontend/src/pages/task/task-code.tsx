import { useQuery } from "@tanstack/react-query";
import { File, Folder, FolderUp, Link2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { diffQuery, fileQuery, type TaskCode, taskCodeQuery, treeQuery } from "@/api/code";
import { formatBytes } from "@/lib/format";
import { escapeName } from "@/lib/escape-name";
import { Badge, Callout } from "@/ui/badge";
import { CodeBlock } from "@/ui/code-block";
import { CopyButton } from "@/ui/copy-button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { TextLink } from "@/ui/text-link";

/** The task's code: origin, files, and changes since the previous task. */
export default function TaskCode({ id }: { id: string }) {
  const { t } = useTranslation();
  const code = useQuery(taskCodeQuery(id));
  const [changes, setChanges] = useState(false);
  if (code.isError) return <LoadError error={code.error} retry={() => void code.refetch()} />;
  if (!code.data) return <Loading />;
  const { snapshot, fetch, previous } = code.data;
  if (!snapshot && fetch) {
    return <Callout tone={fetch.error ? "bad" : "info"}>{fetch.error?.message ?? t("code.fetching")}</Callout>;
  }
  if (!snapshot) return <EmptyState title={t("code.none")} hint={t("code.noneHint")} />;
  return (
    <div className="space-y-4">
      <Origin id={id} code={code.data} />
      <div className="flex flex-wrap gap-2">
        {[false, true].map((each) => (
          <button
            key={String(each)}
            type="button"
            aria-pressed={each === changes}
            onClick={() => setChanges(each)}
            className="rounded-md px-2 py-1 text-sm text-muted hover:bg-sunken aria-pressed:bg-accent-soft aria-pressed:text-accent-ink"
          >
            {each ? t("code.changes") : t("code.tree")}
          </button>
        ))}
      </div>
      {changes ? <Changes snapshot={snapshot.id} previous={previous} /> : <Tree snapshot={snapshot.id} />}
    </div>
  );
}

function Origin({ id, code: { snapshot, origin, requirements } }: { id: string; code: TaskCode }) {
  const { t } = useTranslation();
  if (!snapshot) return null;
  const bring = `fermi clone ${id} code-${snapshot.id.slice(0, 8)}`;
  const rows: [string, string][] = [
    [t("code.snapshot"), snapshot.id.slice(0, 16)],
    [t("code.origin"), origin?.url || t("code.uploaded")],
    [t("code.branch"), origin?.branch || origin?.revision || ""],
    [t("code.commit"), origin?.commit.slice(0, 12) ?? ""],
    [t("code.requirements"), requirements],
  ];
  return (
    <dl className="grid grid-cols-[max-content_minmax(0,1fr)] gap-x-4 gap-y-1 text-sm">
      {rows
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <div key={name} className="contents">
            <dt className="text-muted">{name}</dt>
            <dd className="flex flex-wrap items-center gap-2 font-mono break-all">
              {escapeName(value)}
              {name === t("code.snapshot") && (
                <span className="font-sans text-muted">
                  {t("code.counted", { count: snapshot.files, size: formatBytes(snapshot.sizeBytes) })}
                </span>
              )}
              {name === t("code.commit") && origin?.dirty && <Badge tone="warn">{t("code.dirty")}</Badge>}
            </dd>
          </div>
        ))}
      <dt className="text-muted">{t("code.bring")}</dt>
      <dd className="flex items-center gap-2 font-mono break-all">
        {bring}
        <CopyButton text={bring} />
      </dd>
    </dl>
  );
}

const ICON = { folder: Folder, file: File, link: Link2 };

function Tree({ snapshot }: { snapshot: string }) {
  const { t } = useTranslation();
  const [folder, setFolder] = useState("");
  const [file, setFile] = useState<string>();
  const tree = useQuery(treeQuery(snapshot, folder));
  if (tree.isError) return <LoadError error={tree.error} retry={() => void tree.refetch()} />;
  return (
    <div className="grid gap-4 md:grid-cols-[16rem_minmax(0,1fr)]">
      <ul className="max-h-96 space-y-0.5 overflow-auto text-sm" aria-label={escapeName(folder) || t("code.root")}>
        {folder && (
          <li>
            <Entry name=".." icon={FolderUp} onOpen={() => setFolder(folder.split("/").slice(0, -1).join("/"))} />
          </li>
        )}
        {tree.data?.items.map((each) => (
          <li key={each.path}>
            <Entry
              name={each.name}
              icon={ICON[each.kind]}
              pressed={each.path === file}
              onOpen={() => (each.kind === "folder" ? setFolder(each.path) : setFile(each.path))}
            />
          </li>
        ))}
      </ul>
      {file ? <Content snapshot={snapshot} path={file} /> : <p className="text-sm text-muted">{t("code.choose")}</p>}
    </div>
  );
}

interface EntryProps {
  name: string;
  icon: typeof File;
  pressed?: boolean;
  onOpen: () => void;
}

function Entry({ name, icon: Icon, pressed = false, onOpen }: EntryProps) {
  return (
    <button
      type="button"
      aria-pressed={pressed}
      onClick={onOpen}
      className="flex w-full items-center gap-2 rounded-md px-2 py-1 text-left font-mono text-xs break-all hover:bg-sunken aria-pressed:bg-accent-soft"
    >
      <Icon className="size-4 shrink-0 text-muted" aria-hidden />
      {escapeName(name)}
    </button>
  );
}

function Content({ snapshot, path }: { snapshot: string; path: string }) {
  const { t } = useTranslation();
  const file = useQuery(fileQuery(snapshot, path));
  if (file.isError) return <LoadError error={file.error} retry={() => void file.refetch()} />;
  if (!file.data) return <Loading />;
  if (file.data.text === null) return <p className="text-sm text-muted">{t("code.binary")}</p>;
  return (
    <div className="min-w-0 space-y-2">
      <CodeBlock name={path} content={file.data.text} />
      {file.data.cut && <p className="text-sm text-muted">{t("code.cut")}</p>}
    </div>
  );
}

function Changes({ snapshot, previous }: { snapshot: string; previous: TaskCode["previous"] }) {
  const { t } = useTranslation();
  const diff = useQuery({ ...diffQuery(previous?.snapshotId ?? "", snapshot), enabled: previous !== null });
  if (!previous) return <p className="text-sm text-muted">{t("code.noPrevious")}</p>;
  if (diff.isError) return <LoadError error={diff.error} retry={() => void diff.refetch()} />;
  if (!diff.data) return <Loading />;
  return (
    <div className="space-y-3">
      <p className="text-sm text-muted">
        <TextLink to={`/training/${previous.taskId}`}>{t("code.against", { task: previous.taskId })}</TextLink>
      </p>
      {diff.data.items.length === 0 && <p className="text-sm text-muted">{t("code.same")}</p>}
      {diff.data.items.map(({ path, change, diff: lines, binary, cut }) => (
        <section key={path} aria-label={escapeName(path)} className="min-w-0">
          <h3 className="mb-1 flex items-center gap-2 font-mono text-xs break-all">
            <Badge tone={change === "removed" ? "bad" : change === "added" ? "ok" : "info"}>
              {t(`code.change.${change}`)}
            </Badge>
            {escapeName(path)}
          </h3>
          {binary && <p className="text-sm text-muted">{t("code.binary")}</p>}
          {lines && (
            <pre className="max-h-96 overflow-auto rounded-lg border bg-sunken p-3 font-mono text-xs leading-relaxed">
              {lines.split("\n").map((line, index) => (
                <span key={index} className={getLineColor(line)}>
                  {line}
                  {"\n"}
                </span>
              ))}
            </pre>
          )}
          {cut && <p className="text-sm text-muted">{t("code.cut")}</p>}
        </section>
      ))}
    </div>
  );
}

function getLineColor(line: string): string {
  if (line.startsWith("+")) return "text-ok-ink";
  if (line.startsWith("-")) return "text-bad-ink";
  return line.startsWith("@@") ? "text-info-ink" : "";
}
