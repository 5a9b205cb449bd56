import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { updateRule, channelsQuery, createRule, kindsQuery, noticeKeys } from "@/api/notices";
import type { Me, NoticeRule } from "@/api/types";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog, FormRow, TextField } from "@/ui/form-dialog";
import { OwnerField, formatOwner, parseOwner } from "./owner";
import { buildConditions, formatTimeOfDay } from "./rule-fields";

const FIELDS = [
  "name", "channels", "kinds", "level", "restarts", "waitsSeconds", "quietFrom", "quietTo", "timezone", "breaksThrough",
] as const; // prettier-ignore
const LEVELS = ["info", "warn", "fail"] as const;
/** A new rule, or the settings of one. */
export function RuleForm({ me, rule }: { me: Me; rule?: NoticeRule }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [owner, setOwner] = useState(rule ? formatOwner(rule) : "me");
  const [kinds, setKinds] = useState(rule?.kinds ?? []);
  const [ticked, setTicked] = useState(rule?.channels ?? []);
  const options = useQuery(kindsQuery).data ?? [];
  const channels = (useQuery(channelsQuery).data ?? []).filter((channel) => formatOwner(channel) === owner);
  const save = async (texts: Record<string, string>) => {
    const current = channels.map(({ id }) => id).filter((id) => ticked.includes(id));
    const body = { ...buildConditions(texts), kinds, channels: current };
    await (rule ? updateRule(rule.id, body) : createRule({ ...body, ...parseOwner(owner) }));
    await client.invalidateQueries({ queryKey: noticeKeys.rules });
  };
  const title = rule ? t("notices.changeOf", { name: rule.name }) : t("notices.addRule");
  return (
    <FormDialog
      wide
      title={title}
      submit={t("notices.save")}
      fields={FIELDS}
      onSubmit={save}
      trigger={
        <Button size="sm" aria-label={title}>
          {!rule && <Plus />}
          {t(rule ? "notices.change" : "notices.addRule")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField name="name" label={t("notices.name")} error={problem("name")} defaultValue={rule?.name} required />
          {!rule && <OwnerField me={me} value={owner} onChange={setOwner} />}
          <CheckboxGroup
            title={t("notices.channels")}
            options={channels.map(({ id, name }) => [id, name])}
            value={ticked}
            onChange={setTicked}
            none={t("notices.noChannelsHere")}
            error={problem("channels")}
          />
          <CheckboxGroup
            title={t("notices.kinds")}
            options={options.map(({ kind, title }) => [kind, title])}
            value={kinds}
            onChange={setKinds}
            error={problem("kinds")}
          />
          <LevelField name="level" label={t("notices.level")} value={rule?.level ?? "info"} error={problem("level")} />
          <div className="grid items-start gap-4 sm:grid-cols-2">
            <TextField
              name="restarts"
              label={t("notices.restarts")}
              inputMode="numeric"
              defaultValue={rule?.restarts ?? ""}
              error={problem("restarts")}
            />
            <TextField
              name="waitsSeconds"
              label={t("notices.waits")}
              inputMode="numeric"
              placeholder="60"
              defaultValue={rule?.waitsSeconds ? rule.waitsSeconds / 60 : ""}
              error={problem("waitsSeconds")}
            />
          </div>
          <FormRow title={t("notices.quiet")}>
            <TimeField
              name="quietFrom"
              label={t("notices.quietFrom")}
              value={rule?.quietFrom ?? null}
              error={problem("quietFrom")}
            />
            <TimeField
              name="quietTo"
              label={t("notices.quietTo")}
              value={rule?.quietTo ?? null}
              error={problem("quietTo")}
            />
            <TextField
              name="timezone"
              label={t("notices.timezone")}
              defaultValue={rule?.timezone ?? Intl.DateTimeFormat().resolvedOptions().timeZone}
              error={problem("timezone")}
              required
            />
            <LevelField
              name="breaksThrough"
              label={t("notices.breaksThrough")}
              value={rule?.breaksThrough ?? "fail"}
              error={problem("breaksThrough")}
            />
          </FormRow>
          <label className="flex items-center gap-2 text-sm">
            <input type="checkbox" name="enabled" defaultChecked={rule?.enabled ?? true} />
            {t("notices.enabled")}
          </label>
        </>
      )}
    </FormDialog>
  );
}

interface TicksProps<Value extends string> {
  title: string;
  options: [Value, string][];
  value: Value[];
  onChange: (value: Value[]) => void;
  /** Shown if there are no options. */
  none?: string;
  error: string | undefined;
}

function CheckboxGroup<Value extends string>({ title, options, value, onChange, none, error }: TicksProps<Value>) {
  const toggle = (one: Value) => onChange(value.includes(one) ? value.filter((each) => each !== one) : [...value, one]);
  return (
    <fieldset>
      <legend className="mb-1.5 text-sm font-medium">{title}</legend>
      <div className="grid gap-x-4 gap-y-1 text-sm sm:grid-cols-2">
        {options.map(([one, name]) => (
          <label key={one} className="flex items-center gap-2">
            <input type="checkbox" checked={value.includes(one)} onChange={() => toggle(one)} />
            <span className="min-w-0 break-words">{name}</span>
          </label>
        ))}
      </div>
      {options.length === 0 && <p className="text-sm text-muted">{none}</p>}
      {error && <p className="text-sm text-bad-ink">{error}</p>}
    </fieldset>
  );
}

interface FieldProps<Value> {
  name: string;
  label: string;
  value: Value;
  error: string | undefined;
}

function LevelField({ name, label, value, error }: FieldProps<NoticeRule["level"]>) {
  const { t } = useTranslation();
  return (
    <Field label={label} error={error}>
      {(wiring) => (
        <select {...wiring} name={name} className="control" defaultValue={value}>
          {LEVELS.map((level) => (
            <option key={level} value={level}>
              {t(`bell.levelOf.${level}`)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

function TimeField({ name, label, value, error }: FieldProps<number | null>) {
  return (
    <Field label={label} error={error}>
      {(wiring) => (
        <input {...wiring} type="time" name={name} className="control" defaultValue={formatTimeOfDay(value)} />
      )}
    </Field>
  );
}
