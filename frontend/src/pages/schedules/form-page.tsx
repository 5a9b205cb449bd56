import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { memo, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate, useParams, useSearchParams } from "react-router";
import { ApiError } from "@/api/errors";
import { projectTemplatesQuery, savedTemplateQuery } from "@/api/saved-templates";
import { changeSchedule, createSchedule, momentsQuery, scheduleKeys, scheduleQuery } from "@/api/schedules";
import { canCreate, meQuery } from "@/api/session";
import type { Problem, SavedTemplate, Schedule } from "@/api/types";
import { useDebounced } from "@/lib/hooks";
import { Callout } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Field } from "@/ui/field";
import { Page } from "@/ui/page";
import { ParameterFields, SaveProblems } from "@/ui/template-parameters";
import { buildTexts, buildValues, joinProblems, type ValueTexts } from "@/ui/template-parameters/values";
import { TextLink } from "@/ui/text-link";
import { toast } from "@/ui/toast";
import { buildChange, type ScheduleDraft } from "./draft";
import { COMMON_CRONS, getOwnZone, listZones, MISSED, OVERLAPS } from "./moments";
import { NextMoments } from "./next-moments";
import { ScheduleNotFound } from "./not-found";

/** Changes a schedule, or makes one of a template. */
export function Component() {
  const { id } = useParams();
  return id ? <EditSchedule id={id} /> : <NewSchedule />;
}

function EditSchedule({ id }: { id: string }) {
  const { t } = useTranslation();
  const found = useQuery({ ...scheduleQuery(id), refetchInterval: false });
  const template = useQuery(savedTemplateQuery(found.data?.templateId ?? ""));
  if (found.error instanceof ApiError && found.error.status === 404) return <ScheduleNotFound />;
  if (found.isError) return <LoadError error={found.error} retry={() => void found.refetch()} />;
  if (found.isPending || template.isLoading) return <Loading />;
  const schedule = found.data;
  if (!schedule.mayChange)
    return (
      <Page title={schedule.name}>
        <EmptyState title={t("schedule.notYours")} hint={t("schedule.notYoursHint")}>
          <ButtonLink to={`/schedules/${id}`}>{t("schedule.back")}</ButtonLink>
        </EmptyState>
      </Page>
    );
  const { name, projectId, cron, zone, missed, overlap, values } = schedule;
  return (
    <ScheduleForm
      title={t("schedule.editOf", { name })}
      schedule={schedule}
      template={template.data}
      start={{ name, projectId, templateId: schedule.templateId ?? "", cron, zone, missed, overlap }}
      values={values}
    />
  );
}

function NewSchedule() {
  const { t } = useTranslation();
  const me = useQuery(meQuery);
  const wanted = useSearchParams()[0].get("template") ?? "";
  const template = useQuery(savedTemplateQuery(wanted));
  if (me.isPending || template.isLoading) return <Loading />;
  const projects = me.data?.projects.filter(({ id }) => canCreate(me.data, id)) ?? [];
  const projectId = template.data?.projectId ?? projects[0]?.id ?? "";
  return (
    <ScheduleForm
      title={t("schedule.add")}
      template={template.data}
      start={{
        name: template.data?.name ?? "",
        projectId,
        templateId: template.data?.id ?? "",
        cron: "0 2 * * *",
        zone: getOwnZone(),
        missed: "last",
        overlap: "skip",
      }}
      values={{}}
    />
  );
}

interface ScheduleFormProps {
  title: string;
  /** The schedule to change; undefined: a new one. */
  schedule?: Schedule;
  template: SavedTemplate | undefined;
  start: ScheduleDraft;
  values: Readonly<Record<string, unknown>>;
}

const FIELDS = ["name", "projectId", "templateId", "cron", "zone", "missed", "overlap"];

function ScheduleForm({ title, schedule, template: first, start, values }: ScheduleFormProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const me = useQuery(meQuery).data;
  const [draft, setDraft] = useState(start);
  const [startTexts] = useState<ValueTexts>(() => buildTexts(first?.parameters ?? [], values));
  const [texts, setTexts] = useState(startTexts);
  const change = (part: Partial<ScheduleDraft>) => setDraft((now) => ({ ...now, ...part }));
  const templates = useQuery(projectTemplatesQuery(draft.projectId)).data ?? [];
  const template = [...templates, ...(first ? [first] : [])].find(({ id }) => id === draft.templateId);
  const parameters = template?.parameters ?? [];
  const chooseTemplate = (templateId: string) => {
    const next = templates.find(({ id }) => id === templateId);
    setTexts(buildTexts(next?.parameters ?? [], templateId === start.templateId ? values : {}));
    change({ templateId });
  };
  const chosenValues = buildValues(parameters, texts);
  const changesContent =
    draft.templateId !== start.templateId || parameters.some(({ name }) => texts[name] !== startTexts[name]);
  const save = useMutation({
    mutationFn: () =>
      schedule
        ? changeSchedule(schedule.id, buildChange(schedule, draft, changesContent ? chosenValues : undefined))
        : createSchedule({ ...draft, templateId: draft.templateId || null, values: chosenValues }),
    onSuccess: async (saved) => {
      toast.success(t("schedule.saved"));
      client.setQueryData(scheduleKeys.one(saved.id), saved);
      void client.invalidateQueries({ queryKey: scheduleKeys.all });
      await navigate(`/schedules/${saved.id}`);
    },
  });
  const cron = useDebounced(draft.cron.trim(), 300);
  const zone = useDebounced(draft.zone.trim(), 300);
  const moments = useQuery(momentsQuery(cron, zone)).error;
  const refused: Problem[] = save.error instanceof ApiError ? save.error.problems : [];
  const times: Problem[] = moments instanceof ApiError ? moments.problems : [];
  const problem = (field: string) =>
    joinProblems((field === "cron" || field === "zone" ? times : refused).filter((each) => each.field === field));
  const known = new Set([...FIELDS, ...parameters.map(({ name }) => `values.${name}`)]);
  const others = refused.filter(({ field }) => !known.has(field));
  const projects = me?.projects.filter(({ id }) => canCreate(me, id)) ?? [];
  const takesOver = schedule !== undefined && me?.username !== schedule.owner && changesContent;
  return (
    <Page title={title}>
      <form
        noValidate
        className="space-y-4"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <SaveProblems error={save.error} refused={refused} others={others} />
        <div className="grid items-start gap-4 lg:grid-cols-2">
          <Card title={t("schedule.what")}>
            <div className="space-y-4">
              <Field label={t("schedule.name")} error={problem("name")}>
                {(wiring) => (
                  <input
                    {...wiring}
                    className="control"
                    maxLength={100}
                    autoComplete="off"
                    value={draft.name}
                    onChange={({ target }) => change({ name: target.value })}
                  />
                )}
              </Field>
              {!schedule && (
                <Field label={t("schedule.project")} hint={t("schedule.projectHint")} error={problem("projectId")}>
                  {(wiring) => (
                    <select
                      {...wiring}
                      className="control"
                      value={draft.projectId}
                      onChange={({ target }) => change({ projectId: target.value })}
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
              <Field
                label={t("schedule.template")}
                hint={
                  templates.length === 0 && (
                    <>
                      {t("schedule.noTemplates")} <TextLink to="/templates">{t("app.templates")}</TextLink>
                    </>
                  )
                }
                error={problem("templateId")}
              >
                {(wiring) => (
                  <select
                    {...wiring}
                    className="control"
                    value={draft.templateId}
                    onChange={({ target }) => chooseTemplate(target.value)}
                  >
                    <option value="">
                      {schedule && !schedule.templateId ? t("schedule.ownRequest") : t("parameterForm.choose")}
                    </option>
                    {template && !templates.includes(template) && <option value={template.id}>{template.name}</option>}
                    {templates.map(({ id, name, projectId }) => (
                      <option key={id} value={id}>
                        {projectId === null ? t("schedule.platformTemplate", { name }) : name}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
              <ParameterFields
                key={draft.templateId}
                parameters={parameters}
                texts={texts}
                onChange={(name, text) => setTexts((now) => ({ ...now, [name]: text }))}
                problems={refused}
                submitted
              />
              {takesOver && (
                <Callout tone="warn" role="status">
                  {t("schedule.becomesYours", { owner: schedule.owner })}
                </Callout>
              )}
            </div>
          </Card>
          <Card title={t("schedule.when")}>
            <div className="space-y-4">
              <div>
                <Field label={t("schedule.cron")} hint={t("schedule.cronHint")} error={problem("cron")}>
                  {(wiring) => (
                    <input
                      {...wiring}
                      className="control font-mono"
                      maxLength={100}
                      autoComplete="off"
                      spellCheck={false}
                      value={draft.cron}
                      onChange={({ target }) => change({ cron: target.value })}
                    />
                  )}
                </Field>
                <div className="mt-2 flex flex-wrap gap-1.5">
                  {COMMON_CRONS.map(([text, name]) => (
                    <Button
                      key={name}
                      size="sm"
                      aria-pressed={draft.cron === text}
                      onClick={() => change({ cron: text })}
                    >
                      {t(`schedule.common.${name}`)}
                    </Button>
                  ))}
                </div>
              </div>
              <Field label={t("schedule.zone")} error={problem("zone")}>
                {(wiring) => (
                  <>
                    <input
                      {...wiring}
                      list="time-zones"
                      className="control"
                      maxLength={60}
                      autoComplete="off"
                      spellCheck={false}
                      value={draft.zone}
                      onChange={({ target }) => change({ zone: target.value })}
                    />
                    <ZoneList id="time-zones" />
                  </>
                )}
              </Field>
              <div>
                <p className="mb-1 text-sm font-medium">{t("schedule.nextMoments")}</p>
                <NextMoments cron={cron} zone={zone} />
              </div>
              <Field
                label={t("schedule.overlap")}
                hint={t(`schedule.overlapOf.${draft.overlap}`)}
                error={problem("overlap")}
              >
                {(wiring) => (
                  <select
                    {...wiring}
                    className="control"
                    value={draft.overlap}
                    onChange={({ target }) => change({ overlap: target.value as ScheduleDraft["overlap"] })}
                  >
                    {OVERLAPS.map((each) => (
                      <option key={each} value={each}>
                        {t(`schedule.overlapName.${each}`)}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
              <Field
                label={t("schedule.missed")}
                hint={t(`schedule.missedOf.${draft.missed}`)}
                error={problem("missed")}
              >
                {(wiring) => (
                  <select
                    {...wiring}
                    className="control"
                    value={draft.missed}
                    onChange={({ target }) => change({ missed: target.value as ScheduleDraft["missed"] })}
                  >
                    {MISSED.map((each) => (
                      <option key={each} value={each}>
                        {t(`schedule.missedName.${each}`)}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
            </div>
          </Card>
        </div>
        <div className="flex justify-end gap-2">
          <ButtonLink to={schedule ? `/schedules/${schedule.id}` : "/schedules"}>{t("app.cancel")}</ButtonLink>
          <Button type="submit" look="primary" disabled={save.isPending}>
            {t("app.save")}
          </Button>
        </div>
      </form>
    </Page>
  );
}

/** The time zones that the browser knows, drawn once: there are hundreds. */
const ZoneList = memo(function ZoneList({ id }: { id: string }) {
  return (
    <datalist id={id}>
      {listZones().map((each) => (
        <option key={each} value={each} />
      ))}
    </datalist>
  );
});
