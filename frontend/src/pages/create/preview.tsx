import { type UseQueryResult } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import type { Environment, Preview as PreviewData, Problem } from "@/api/types";
import { cx } from "@/lib/cx";
import { Badge } from "@/ui/badge";
import { Card } from "@/ui/card";
import { LoadError } from "@/ui/errors";
import { FileTabs } from "@/ui/file-tabs";
import { MessageList } from "@/ui/message-list";
import { Tabs } from "@/ui/tabs";
import { RankTable } from "./rank-table";

interface PreviewProps {
  preview: UseQueryResult<PreviewData>;
  /** Whether a newer preview is pending. */
  waiting: boolean;
  problems: Problem[];
  environments: ReadonlyMap<string, Environment>;
  onGoTo: (problem: Problem) => void;
}

/** The server's preview: ranks, files, and what is still missing. */
export function Preview({ preview, waiting, problems, environments, onGoTo }: PreviewProps) {
  const { t } = useTranslation();
  const data = preview.data;
  const isStale = waiting || preview.isFetching;
  return (
    <Card
      title={t("create.preview")}
      aside={
        <span role="status">
          {isStale ? (
            <span className="text-sm text-muted">{t("create.previewing")}</span>
          ) : (
            (data || problems.length > 0) && <PreviewState count={problems.length} />
          )}
        </span>
      }
    >
      {preview.isError && problems.length === 0 && (
        <LoadError error={preview.error} retry={() => void preview.refetch()} />
      )}
      {problems.length > 0 && <Problems problems={problems} onGoTo={onGoTo} />}
      {data && data.ranks.length > 0 ? (
        <div aria-busy={isStale} className={cx("-mx-4 mt-1 -mb-4 transition-opacity", isStale && "opacity-60")}>
          <Tabs
            label={t("create.preview")}
            tabs={[
              {
                id: "ranks",
                label: t("create.rankCount", { count: data.ranks.length }),
                content: <RankTable ranks={data.ranks} environments={environments} />,
              },
              { id: "files", label: t("create.files"), content: <FileTabs files={listFiles(data)} /> },
              { id: "objects", label: t("create.objects"), content: <FileTabs files={data.artifacts} /> },
            ]}
          />
        </div>
      ) : (
        <p className="text-sm text-muted">{t("create.previewHint")}</p>
      )}
    </Card>
  );
}

function PreviewState({ count }: { count: number }) {
  const { t } = useTranslation();
  return count === 0 ? (
    <Badge tone="ok">{t("create.ready")}</Badge>
  ) : (
    <Badge tone="warn">{t("create.problems", { count })}</Badge>
  );
}

function listFiles({ files, command }: PreviewData) {
  return [...files, { name: "command.sh", content: command.join(" ") }];
}

function Problems({ problems, onGoTo }: { problems: Problem[]; onGoTo: (problem: Problem) => void }) {
  const { t } = useTranslation();
  return (
    <div className="mb-3">
      <MessageList
        notes={problems.map((problem) => ({
          id: `${problem.field}/${problem.error}/${problem.message}`,
          level: "warn",
          message: problem.message,
          hint: problem.hint,
          action: problem.field && (
            <button
              type="button"
              className="shrink-0 rounded-md font-medium text-accent-ink underline underline-offset-2"
              onClick={() => onGoTo(problem)}
            >
              {t("create.goTo")}
            </button>
          ),
        }))}
      />
    </div>
  );
}
