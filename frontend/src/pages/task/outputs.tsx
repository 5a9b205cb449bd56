import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { FILES_PER_PAGE, buildDownloadUrl, outputsQuery } from "@/api/files";
import { isFinished } from "@/api/tasks";
import type { Task } from "@/api/types";
import { FileList, Breadcrumbs } from "@/pages/files/list";
import { ButtonAnchor } from "@/ui/button";
import { Card } from "@/ui/card";
import { Pager } from "@/ui/pager";

/** Files that the task wrote, if any. */
export default function Outputs({ task }: { task: Task }) {
  const { t } = useTranslation();
  const [asked, setAsked] = useState({ path: "", search: "", page: 1 });
  const outputs = useQuery(outputsQuery(task.taskId, asked, !isFinished(task))).data;
  if (!outputs || (outputs.total === 0 && asked.path === "")) return null;
  const below = `training-tasks/${task.taskId}/outputs`;
  const open = (path: string) => setAsked({ path, search: "", page: 1 });
  return (
    <Card
      title={t("files.outputs")}
      aside={
        <ButtonAnchor size="sm" href={buildDownloadUrl(below, { path: asked.path, kind: "folder" })} download>
          <Download />
          {t("files.all")}
        </ButtonAnchor>
      }
    >
      <p className="mb-2 text-sm text-muted">{t("files.outputsHint")}</p>
      <div className="space-y-3">
        <Breadcrumbs path={asked.path} onOpen={open} />
        <FileList items={outputs.items} below={below} whole={false} narrow onOpen={open} />
        <Pager
          count={t("files.count", { count: outputs.total })}
          pages={Math.ceil(outputs.total / FILES_PER_PAGE)}
          page={asked.page}
          onPage={(page) => setAsked({ ...asked, page })}
        />
      </div>
    </Card>
  );
}
