import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { useParams, useSearchParams } from "react-router";
import { ApiError } from "@/api/errors";
import { savedTemplateQuery } from "@/api/saved-templates";
import { canCreate, meQuery } from "@/api/session";
import { cloneQuery, taskQuery, tasksQuery } from "@/api/tasks";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Field } from "@/ui/field";
import { Page } from "@/ui/page";
import { buildDraft, type Json } from "./editor";
import { Editor } from "./editor-form";
import { TemplateNotFound } from "./facts";

/** Changes a template, or makes one from a task. */
export function Component() {
  const { id } = useParams();
  const task = useSearchParams()[0].get("task");
  if (id) return <EditTemplate id={id} />;
  return task ? <NewTemplate key={task} taskId={task} /> : <ChooseTask />;
}

function EditTemplate({ id }: { id: string }) {
  const { t } = useTranslation();
  const found = useQuery(savedTemplateQuery(id));
  if (found.error instanceof ApiError && found.error.status === 404) return <TemplateNotFound />;
  if (found.isError) return <LoadError error={found.error} retry={() => void found.refetch()} />;
  if (found.isPending) return <Loading />;
  const template = found.data;
  if (!template.mayChange)
    return (
      <Page title={template.name}>
        <EmptyState title={t("savedTemplate.notYours")} hint={t("savedTemplate.notYoursHint")}>
          <ButtonLink to={`/templates/${id}`}>{t("savedTemplate.back")}</ButtonLink>
        </EmptyState>
      </Page>
    );
  return (
    <Editor
      title={t("savedTemplate.editOf", { name: template.name })}
      template={template}
      start={{
        name: template.name,
        description: template.description,
        projectId: template.projectId,
        request: template.request as Json,
        parameters: template.parameters.map(buildDraft),
      }}
    />
  );
}

function NewTemplate({ taskId }: { taskId: string }) {
  const { t } = useTranslation();
  const task = useQuery(taskQuery(taskId));
  const request = useQuery(cloneQuery(taskId));
  const failed = task.error ?? request.error;
  if (failed) return <LoadError error={failed} retry={() => void Promise.all([task.refetch(), request.refetch()])} />;
  if (!task.data || !request.data) return <Loading />;
  const rest = Object.fromEntries(Object.entries(request.data).filter(([name]) => name !== "after"));
  return (
    <Editor
      title={t("savedTemplate.saveOf", { name: task.data.taskName })}
      start={{
        name: task.data.taskName,
        description: "",
        projectId: task.data.projectId,
        request: rest,
        parameters: [],
      }}
    />
  );
}

/** The newest tasks whose requests can be saved. */
function ChooseTask() {
  const { t } = useTranslation();
  const [, setParams] = useSearchParams();
  const me = useQuery(meQuery).data;
  const found = useQuery(tasksQuery({ page: 1 }));
  const tasks = found.data?.items.filter(({ projectId }) => canCreate(me, projectId)) ?? [];
  return (
    <Page title={t("savedTemplate.add")}>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data && (
        <Card>
          {tasks.length === 0 ? (
            <EmptyState title={t("savedTemplate.noTasks")} hint={t("savedTemplate.noTasksHint")}>
              <ButtonLink look="primary" to="/training/create">
                {t("tasks.create")}
              </ButtonLink>
            </EmptyState>
          ) : (
            <Field label={t("savedTemplate.fromTask")} hint={t("savedTemplate.fromTaskHint")}>
              {(wiring) => (
                <select
                  {...wiring}
                  className="control sm:max-w-120"
                  value=""
                  onChange={({ target }) => setParams({ task: target.value })}
                >
                  <option value="">{t("parameterForm.choose")}</option>
                  {tasks.map(({ taskId, taskName }) => (
                    <option key={taskId} value={taskId}>
                      {`${taskName} · ${taskId}`}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          )}
        </Card>
      )}
    </Page>
  );
}
