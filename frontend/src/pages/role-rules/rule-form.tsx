import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import { directoriesQuery } from "@/api/directories";
import { invalidateRoleRules, previewRoleRules, type RoleRule, saveRoleRule } from "@/api/role-rules";
import { meQuery } from "@/api/session";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { ErrorMessage } from "@/ui/errors";
import { Field } from "@/ui/field";
import { formatProblems } from "@/ui/form-dialog";
import { Modal, ModalClose } from "@/ui/modal";
import { toast } from "@/ui/toast";
import { buildRule, type Draft, EMPTY_DRAFT, makeDraft, type Match, splitPattern, type Target } from "./draft";
import { Preview } from "./preview";
import { SourceFields } from "./source-fields";

const FIELDS = ["provider", "claim", "pattern", "projectId", "role"];
const ROLES: Draft["role"][] = ["viewer", "member", "maintainer"];
const TARGETS: Target[] = ["project", "group", "administrator"];

interface RuleFormProps {
  /** Undefined: a new one. */
  rule?: RoleRule;
  trigger: ReactNode;
}

export function RuleForm({ rule, trigger }: RuleFormProps) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  return (
    <Modal
      wide
      trigger={trigger}
      title={rule ? t("roleRules.editOf", { pattern: rule.pattern }) : t("roleRules.add")}
      open={open}
      onOpenChange={setOpen}
    >
      <RuleFields rule={rule} onSaved={() => setOpen(false)} />
    </Modal>
  );
}

/** The fields of a rule. It is saved as a preview shows it: a change of a field drops the preview. */
function RuleFields({ rule, onSaved }: { rule: RoleRule | undefined; onSaved: () => void }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const directories = useQuery(directoriesQuery).data ?? [];
  const projects = useQuery(meQuery).data?.projects ?? [];
  const [draft, setDraft] = useState(rule ? makeDraft(rule) : EMPTY_DRAFT);
  const preview = useMutation({
    mutationFn: (values: Draft) => previewRoleRules({ ...(rule && { ruleId: rule.id }), rule: buildRule(values) }),
  });
  const save = useMutation({
    mutationFn: (fingerprint: string) => saveRoleRule(rule?.id, buildRule(draft), fingerprint),
    onSuccess: () => {
      toast.success(t("roleRules.saved"));
      onSaved();
    },
    onError: () => preview.reset(),
    onSettled: () => invalidateRoleRules(client),
  });
  const change = (values: Partial<Draft>) => {
    setDraft({ ...draft, ...values });
    preview.reset();
    save.reset();
  };
  const onSubmit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    save.reset();
    preview.mutate(draft);
  };
  const error = save.error ?? preview.error;
  const problems = (error instanceof ApiError ? error.problems : []).map((problem) => ({
    ...problem,
    field: problem.field.replace(/^rule\./, ""),
  }));
  const elsewhere = problems.filter(({ field }) => !FIELDS.includes(field));
  const problem = (field: string) =>
    problems
      .filter((each) => each.field === field)
      .map(formatProblems)
      .join("\n") || undefined;
  const isAdministrator = draft.target === "administrator";
  return (
    <form onSubmit={onSubmit} className="space-y-4">
      {error && (problems.length === 0 || elsewhere.length > 0) && (
        <Callout tone="bad" role="alert">
          {elsewhere.length === 0 && <ErrorMessage error={error} />}
          {elsewhere.map((each, index) => (
            <p key={index}>{formatProblems(each)}</p>
          ))}
        </Callout>
      )}
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <SourceFields draft={draft} onChange={change} problem={problem} />
        <Field label={t("roleRules.match")}>
          {(wiring) => (
            <select
              {...wiring}
              className="control"
              value={draft.match}
              onChange={({ target }) => change({ match: target.value as Match })}
            >
              <option value="exact">{t("roleRules.exact")}</option>
              <option value="prefix">{t("roleRules.prefix")}</option>
            </select>
          )}
        </Field>
        <Field
          label={t(draft.match === "exact" ? "roleRules.group" : "roleRules.beginning")}
          hint={t("roleRules.groupHint")}
          error={problem("pattern")}
        >
          {(wiring) => (
            <input
              {...wiring}
              className="control"
              required={draft.match === "exact"}
              maxLength={199}
              autoComplete="off"
              value={draft.group}
              onChange={({ target }) =>
                change(target.value.endsWith("*") ? splitPattern(target.value) : { group: target.value })
              }
            />
          )}
        </Field>
        <Field label={t("roleRules.target")} className="sm:col-span-2">
          {(wiring) => (
            <select
              {...wiring}
              className="control"
              value={draft.target}
              onChange={({ target }) => change({ target: target.value as Target })}
            >
              {TARGETS.map((each) => (
                <option key={each} value={each}>
                  {t(`roleRules.targets.${each}`)}
                </option>
              ))}
            </select>
          )}
        </Field>
        {draft.target === "project" && (
          <Field label={t("roleRules.project")} error={problem("projectId")}>
            {(wiring) => (
              <select
                {...wiring}
                className="control"
                required
                value={draft.projectId}
                onChange={({ target }) => change({ projectId: target.value })}
              >
                <option value="">{t("roleRules.chooseProject")}</option>
                {projects.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {name}
                  </option>
                ))}
              </select>
            )}
          </Field>
        )}
        {!isAdministrator && (
          <Field label={t("roleRules.role")} error={problem("role")}>
            {(wiring) => (
              <select
                {...wiring}
                className="control"
                value={draft.role}
                onChange={({ target }) => change({ role: target.value as Draft["role"] })}
              >
                {ROLES.map((role) => (
                  <option key={role} value={role}>
                    {t(`settings.roleOf.${role}`)}
                  </option>
                ))}
              </select>
            )}
          </Field>
        )}
      </div>
      {isAdministrator && <Callout tone="warn">{t("roleRules.administratorHint")}</Callout>}
      {draft.target === "group" && <p className="text-sm text-muted">{t("roleRules.groupProjectHint")}</p>}
      {preview.data ? (
        <Preview
          preview={preview.data}
          ofDirectory={directories.some(({ id }) => id === draft.provider)}
          onGroup={(group) => change({ match: "exact", group })}
        />
      ) : (
        <p className="text-sm text-muted">{t("roleRules.previewFirst")}</p>
      )}
      <div className="flex flex-wrap justify-end gap-2">
        <ModalClose asChild>
          <Button>{t("app.cancel")}</Button>
        </ModalClose>
        <Button type="submit" look={preview.data ? "secondary" : "primary"} disabled={preview.isPending}>
          {t("roleRules.showPreview")}
        </Button>
        <Button
          look="primary"
          disabled={!preview.data || save.isPending}
          onClick={() => preview.data && save.mutate(preview.data.fingerprint)}
        >
          {t("app.save")}
        </Button>
      </div>
    </form>
  );
}
