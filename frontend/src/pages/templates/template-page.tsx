import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CalendarClock, Pencil, Play, Trash2 } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams } from "react-router";
import { ApiError } from "@/api/errors";
import {
  createTaskFromTemplate,
  deleteSavedTemplate,
  savedTemplateQuery,
  templateKeys,
  templatePreviewQuery,
} from "@/api/saved-templates";
import { schedulesQuery } from "@/api/schedules";
import { canCreate, meQuery } from "@/api/session";
import { invalidateTask } from "@/api/tasks";
import type { Preview, Problem, SavedTemplate, TemplatePreview, TemplateRunRequest } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { useDebounced, useNow } from "@/lib/hooks";
import { createIdempotencyKey } from "@/lib/idempotency-key";
import { Badge, Callout } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FileTabs } from "@/ui/file-tabs";
import { MessageList } from "@/ui/message-list";
import { Page } from "@/ui/page";
import { DefinitionList } from "@/ui/table";
import { ParameterFields } from "@/ui/template-parameters";
import { buildTexts, buildValues, listOtherProblems } from "@/ui/template-parameters/values";
import { toast } from "@/ui/toast";
import { formatYaml } from "../task/request-recipes";
import { LastUse, OwnerBadge, TemplateNotFound } from "./facts";

const NONE: Problem[] = [];

export function Component() {
  const { id = "" } = useParams();
  const found = useQuery(savedTemplateQuery(id));
  if (found.data) return <TemplatePage key={`${id}/${found.data.version}`} template={found.data} />;
  if (found.error instanceof ApiError && found.error.status === 404) return <TemplateNotFound />;
  return found.isError ? <LoadError error={found.error} retry={() => void found.refetch()} /> : <Loading />;
}

function TemplatePage({ template }: { template: SavedTemplate }) {
  const me = useQuery(meQuery).data;
  const mayUse = canCreate(me, template.projectId ?? undefined);
  return (
    <Page title={template.name} actions={<Actions template={template} mayUse={mayUse} />}>
      {template.description && (
        <p className="mb-4 max-w-4xl text-sm whitespace-pre-line text-muted">{template.description}</p>
      )}
      <div className="grid gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        {mayUse ? <RunForm template={template} /> : <ReadOnly template={template} />}
        <aside className="min-w-0 space-y-4">
          <Facts template={template} />
          <SchedulesOf template={template} />
        </aside>
      </div>
    </Page>
  );
}

function Actions({ template, mayUse }: { template: SavedTemplate; mayUse: boolean }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const remove = useMutation({
    mutationFn: () => deleteSavedTemplate(template.id),
    onSuccess: async () => {
      toast.success(t("savedTemplate.deleted"));
      await navigate("/templates");
      client.removeQueries({ queryKey: templateKeys.one(template.id) });
      await client.invalidateQueries({ queryKey: templateKeys.all });
    },
    onError: (error) => toastError(t, error),
  });
  return (
    <>
      {mayUse && (
        <ButtonLink to={`/schedules/create?template=${template.id}`}>
          <CalendarClock />
          {t("savedTemplate.schedule")}
        </ButtonLink>
      )}
      {template.mayChange && (
        <>
          <ButtonLink to={`/templates/${template.id}/edit`}>
            <Pencil />
            {t("savedTemplate.edit")}
          </ButtonLink>
          <ConfirmDialog
            danger
            title={t("savedTemplate.deleteTitle", { name: template.name })}
            description={t("savedTemplate.deleteHint")}
            action={t("savedTemplate.delete")}
            onConfirm={() => remove.mutate()}
            trigger={
              <Button disabled={remove.isPending}>
                <Trash2 />
                {t("savedTemplate.delete")}
              </Button>
            }
          />
        </>
      )}
    </>
  );
}

/** The form of the parameters, what a task of it would run, and the button that creates it. */
function RunForm({ template }: { template: SavedTemplate }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const me = useQuery(meQuery).data;
  const projects = me?.projects.filter(({ id }) => canCreate(me, id)) ?? [];
  const [texts, setTexts] = useState(() => buildTexts(template.parameters));
  const [chosen, setChosen] = useState<string>();
  const [submitted, setSubmitted] = useState(false);
  const project = chosen ?? projects[0]?.id;
  const body: TemplateRunRequest = {
    values: buildValues(template.parameters, texts),
    ...(template.projectId === null && project && { projectId: project }),
  };
  const current = JSON.stringify(body);
  const settled = useDebounced(current, 300);
  const preview = useQuery(templatePreviewQuery(template.id, JSON.parse(settled) as TemplateRunRequest));
  const sent = useRef({ body: "", key: "" });
  const create = useMutation({
    mutationFn: (text: string) => {
      if (sent.current.body !== text) sent.current = { body: text, key: createIdempotencyKey() };
      return createTaskFromTemplate(template.id, JSON.parse(text) as TemplateRunRequest, sent.current.key);
    },
    onSuccess: async ({ taskId, taskName }) => {
      toast.success(t("savedTemplate.created", { name: taskName }));
      void invalidateTask(client);
      void client.invalidateQueries({ queryKey: templateKeys.all });
      await navigate(`/training/${taskId}`);
    },
    onError: (error) => {
      setSubmitted(true);
      if (!(error instanceof ApiError) || error.problems.length === 0) toastError(t, error);
    },
  });
  const stale = settled !== current;
  const problems = preview.data?.problems ?? NONE;
  const late = create.error instanceof ApiError && create.variables === current ? create.error.problems : NONE;
  const refused = problems.length > 0 ? problems : late;
  const others = listOtherProblems(refused, template.parameters);
  return (
    <div className="min-w-0 space-y-4">
      <Card title={t("savedTemplate.form")}>
        <form
          noValidate
          className="space-y-4"
          onSubmit={(event) => {
            event.preventDefault();
            create.mutate(current);
          }}
        >
          {template.parameters.length === 0 && <p className="text-sm text-muted">{t("savedTemplate.noParameters")}</p>}
          {template.projectId === null && (
            <Field label={t("savedTemplate.taskProject")} hint={t("savedTemplate.taskProjectHint")}>
              {(wiring) => (
                <select
                  {...wiring}
                  className="control sm:max-w-80"
                  value={project}
                  onChange={({ target }) => setChosen(target.value)}
                >
                  {projects.map(({ id, name }) => (
                    <option key={id} value={id}>
                      {name}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          )}
          <ParameterFields
            parameters={template.parameters}
            texts={texts}
            onChange={(name, text) => setTexts((now) => ({ ...now, [name]: text }))}
            problems={refused}
            submitted={submitted}
          />
          {others.length > 0 && (
            <div>
              <p className="mb-2 text-sm font-medium">{t("savedTemplate.otherProblems")}</p>
              <MessageList
                notes={others.map((problem) => ({
                  id: `${problem.field}/${problem.error}`,
                  level: "warn",
                  message: problem.message,
                  hint: problem.hint,
                }))}
              />
            </div>
          )}
          <div className="flex items-center justify-end gap-3">
            {submitted && refused.length > 0 && !stale && (
              <span role="status" className="text-sm text-bad-ink">
                {t("savedTemplate.refused", { count: refused.length })}
              </span>
            )}
            <Button type="submit" look="primary" disabled={create.isPending}>
              <Play />
              {t("savedTemplate.create")}
            </Button>
          </div>
        </form>
      </Card>
      <PreviewCard
        error={preview.isError ? preview.error : undefined}
        retry={() => void preview.refetch()}
        preview={preview.data}
        waiting={stale || preview.isFetching}
      />
    </div>
  );
}

interface PreviewProps {
  preview: TemplatePreview | undefined;
  error: Error | undefined;
  retry: () => void;
  waiting: boolean;
}

function PreviewCard({ preview, error, retry, waiting }: PreviewProps) {
  const { t } = useTranslation();
  const plan = preview?.preview as Preview | null | undefined;
  const count = preview?.problems.length ?? 0;
  return (
    <Card
      title={t("savedTemplate.preview")}
      aside={
        <span role="status">
          {waiting ? (
            <span className="text-sm text-muted">{t("savedTemplate.previewing")}</span>
          ) : (
            preview && (
              <Badge tone={count === 0 ? "ok" : "warn"}>
                {count === 0 ? t("savedTemplate.ready") : t("savedTemplate.problems", { count })}
              </Badge>
            )
          )}
        </span>
      }
    >
      {error && <LoadError error={error} retry={retry} />}
      {preview && (
        <div className="space-y-3">
          {plan && plan.ranks.length > 0 && (
            <p className="text-sm text-muted">{t("savedTemplate.ranks", { count: plan.ranks.length })}</p>
          )}
          <FileTabs
            files={[
              { name: "request.yaml", content: `${formatYaml(preview.request)}\n` },
              ...(plan?.command.length ? [{ name: "command.sh", content: plan.command.join(" ") }] : []),
              ...(plan?.files ?? []),
            ]}
          />
        </div>
      )}
    </Card>
  );
}

/** What a viewer sees: the request with its placeholders. */
function ReadOnly({ template }: { template: SavedTemplate }) {
  const { t } = useTranslation();
  return (
    <Card title={t("savedTemplate.request")}>
      <div className="space-y-3">
        <Callout tone="info">{t("savedTemplate.viewer")}</Callout>
        <FileTabs files={[{ name: "request.yaml", content: `${formatYaml(template.request)}\n` }]} />
      </div>
    </Card>
  );
}

function Facts({ template }: { template: SavedTemplate }) {
  const { t } = useTranslation();
  const now = useNow();
  return (
    <Card title={t("savedTemplate.about")}>
      <DefinitionList
        facts={[
          [t("savedTemplate.project"), <OwnerBadge key="owner" projectId={template.projectId} />],
          [t("savedTemplate.savedBy"), template.createdBy || "–"],
          [t("savedTemplate.changed"), formatDateTime(template.updatedAt)],
          [t("savedTemplate.version"), String(template.version)],
          [t("savedTemplate.lastUse"), <LastUse key="use" template={template} now={now} />],
        ]}
      />
    </Card>
  );
}

function SchedulesOf({ template }: { template: SavedTemplate }) {
  const { t } = useTranslation();
  const found = useQuery(schedulesQuery({ template: template.id, page: 1 })).data;
  if (!found || found.total === 0) return null;
  return (
    <Card title={t("savedTemplate.schedules")}>
      <ul className="space-y-1 text-sm">
        {found.items.map(({ id, name, cron }) => (
          <li key={id} className="flex justify-between gap-3">
            <Link to={`/schedules/${id}`} className="min-w-0 break-words text-accent-ink hover:underline">
              {name}
            </Link>
            <span className="shrink-0 font-mono text-xs text-muted">{cron}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}
