import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { environmentLogQuery } from "@/api/managed-environments";
import { getOverwrittenText } from "@/api/logs";
import { removeCodes } from "@/lib/ansi";
import { LoadError, Loading } from "@/ui/errors";
import { VirtualList } from "@/ui/virtual-list";

const ROW_HEIGHT = 20;

/** The log of the newest run, from the environment daemon and the service. */
export function EnvironmentLogs({ id, run }: { id: string; run: number }) {
  const { t } = useTranslation();
  const log = useQuery(environmentLogQuery(id, run));
  const [follow, setFollow] = useState(true);
  const text = log.data?.text ?? "";
  const lines = useMemo(
    () =>
      text
        ? text
            .replace(/\n$/, "")
            .split("\n")
            .map((line) => removeCodes(getOverwrittenText(line)))
        : [],
    [text],
  );
  if (log.isError && !log.data) return <LoadError error={log.error} retry={() => void log.refetch()} />;
  if (log.isPending) return <Loading />;
  if (lines.length === 0) return <p className="py-8 text-center text-sm text-muted">{t("managedEnvironment.noLog")}</p>;
  return (
    <div className="space-y-2">
      <div className="flex flex-wrap items-center justify-between gap-2 text-sm">
        <label className="flex items-center gap-2">
          <input type="checkbox" checked={follow} onChange={({ target }) => setFollow(target.checked)} />
          {t("managedEnvironment.follow")}
        </label>
        {log.data.cut && <span className="text-muted">{t("managedEnvironment.logCut")}</span>}
      </div>
      <VirtualList
        count={lines.length}
        height={ROW_HEIGHT}
        label={t("managedEnvironment.logs")}
        className="h-96 max-h-[60dvh] overflow-auto rounded-lg border bg-sunken px-3 py-2 font-mono text-xs"
        follow={follow}
        onFollow={setFollow}
      >
        {(index) => <div className="leading-5 whitespace-pre">{lines[index]}</div>}
      </VirtualList>
    </div>
  );
}
