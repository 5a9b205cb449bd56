import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { ApiError } from "@/api/errors";
import { datasetsQuery } from "@/api/inventory";
import { changeSavedTemplate, createSavedTemplate, templateKeys } from "@/api/saved-templates";
import { meQuery } from "@/api/session";
import type { SavedTemplate } from "@/api/types";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { Field } from "@/ui/field";
import { SaveProblems } from "@/ui/template-parameters";
import { Page } from "@/ui/page";
import { joinProblems } from "@/ui/template-parameters/values";
import { toast } from "@/ui/toast";
import {
  buildParameters,
  buildRequest,
  type DraftParameter,
  type Json,
  listFields,
  proposeParameter,
  removeParameter,
  type RequestField,
  withoutPlace,
} from "./editor";
import { ParameterEditor } from "./parameter-editor";
import { RequestFields, RequestText } from "./request-fields";

interface TemplateDraft {
  name: string;
  description: string;
  projectId: string | null;
  request: Json;
  parameters: DraftParameter[];
}

interface EditorProps {
  title: string;
  start: TemplateDraft;
  /** The template to change; undefined: a new one. */
  template?: SavedTemplate;
}

/** The form of a template: on the left what varies, on the right the fields of the request. */
export function Editor({ title, start, template }: EditorProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const me = useQuery(meQuery).data;
  const datasets = useQuery(datasetsQuery).data ?? [];
  const [draft, setDraft] = useState(start);
  const [nextKey, setNextKey] = useState(start.parameters.length);
  const change = (part: Partial<TemplateDraft>) => setDraft((now) => ({ ...now, ...part }));
  const save = useMutation({
    mutationFn: () => {
      const body = {
        name: draft.name,
        description: draft.description,
        request: buildRequest(draft.request, draft.parameters),
        parameters: buildParameters(draft.parameters),
      };
      return template
        ? changeSavedTemplate(template.id, body)
        : createSavedTemplate({ ...body, projectId: draft.projectId });
    },
    onSuccess: async (saved) => {
      toast.success(t("savedTemplate.saved"));
      client.setQueryData(templateKeys.one(saved.id), saved);
      void client.invalidateQueries({ queryKey: templateKeys.all });
      await navigate(`/templates/${saved.id}`);
    },
  });
  const problems = save.error instanceof ApiError ? save.error.problems : [];
  const problem = (field: string) => joinProblems(problems.filter((each) => each.field === field));
  const elsewhere = problems.filter(({ field }) => !["name", "description", "projectId"].includes(field));
  const ofRequest = elsewhere.filter(({ field }) => !field.startsWith("parameters."));
  const versions = new Map(datasets.flatMap((each) => each.versions.map(({ id }): [string, string] => [id, each.id])));
  const add = (field: RequestField) => {
    const taken = draft.parameters.map(({ name }) => name);
    change({ parameters: [...draft.parameters, proposeParameter(draft.request, field, nextKey, taken)] });
    setNextKey(nextKey + 1);
  };
  const remove = (parameter: DraftParameter) =>
    change({
      parameters: draft.parameters.filter(({ key }) => key !== parameter.key),
      ...(!parameter.place && { request: removeParameter(draft.request, parameter, versions) }),
    });
  const project = me?.projects.find(({ id }) => id === draft.projectId);
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
        <SaveProblems error={save.error} refused={problems} others={ofRequest} />
        <Card>
          <div className="grid items-start gap-4 sm:grid-cols-2">
            <Field label={t("savedTemplate.name")} error={problem("name")}>
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
            {!template && (
              <Field label={t("savedTemplate.offeredTo")} error={problem("projectId")}>
                {(wiring) => (
                  <select
                    {...wiring}
                    className="control"
                    value={draft.projectId ?? ""}
                    onChange={({ target }) => change({ projectId: target.value || null })}
                  >
                    <option value={start.projectId ?? ""}>
                      {t("savedTemplate.ofProject", { name: project?.name ?? start.projectId })}
                    </option>
                    {me?.isAdministrator && <option value="">{t("savedTemplate.everyProject")}</option>}
                  </select>
                )}
              </Field>
            )}
            <Field
              label={t("savedTemplate.description")}
              hint={t("savedTemplate.descriptionHint")}
              error={problem("description")}
              className="sm:col-span-2"
            >
              {(wiring) => (
                <textarea
                  {...wiring}
                  rows={2}
                  className="control h-auto py-2"
                  maxLength={10_000}
                  value={draft.description}
                  onChange={({ target }) => change({ description: target.value })}
                />
              )}
            </Field>
          </div>
        </Card>
        <div className="grid items-start gap-4 lg:grid-cols-2">
          <Card title={t("savedTemplate.fields")}>
            <RequestFields
              fields={listFields(draft.request)}
              parameters={draft.parameters}
              onAdd={add}
              onRemove={remove}
            />
            <RequestText
              request={buildRequest(draft.request, draft.parameters)}
              onChange={(request) => change({ request, parameters: draft.parameters.map(withoutPlace) })}
            />
          </Card>
          <Card title={t("savedTemplate.parameters")}>
            <ParameterEditor
              parameters={draft.parameters}
              problems={elsewhere}
              onChange={(parameters) => change({ parameters })}
              onRemove={remove}
            />
          </Card>
        </div>
        <div className="flex justify-end gap-2">
          <ButtonLink to={template ? `/templates/${template.id}` : "/templates"}>{t("app.cancel")}</ButtonLink>
          <Button type="submit" look="primary" disabled={save.isPending}>
            {t("savedTemplate.save")}
          </Button>
        </div>
      </form>
    </Page>
  );
}
