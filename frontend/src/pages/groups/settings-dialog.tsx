import { useQueryClient } from "@tanstack/react-query";
import { Settings } from "lucide-react";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import type { WorkerGroup } from "@/api/types";
import { updateGroup, invalidateWorkers } from "@/api/workers";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog, FormRow, LinesField, TextField } from "@/ui/form-dialog";
import { buildSettingsChange, FIELDS, formatSettings } from "./settings";

/** The settings of a group: how its processes connect, and what they run. */
export function GroupSettingsDialog({ group }: { group: WorkerGroup }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { name, workers, problems, allowedActions } = group;
  const texts = formatSettings(group);
  const save = async (typed: Record<string, string>) => {
    await updateGroup(group.id, buildSettingsChange(typed));
    toast.success(t("groups.saved"));
    await invalidateWorkers(client);
  };
  return (
    <FormDialog
      wide
      title={t("groups.configureTitle", { name })}
      description={allowedActions.includes("stop") ? t("groups.runningKeeps") : undefined}
      submit={t("groups.save")}
      fields={FIELDS}
      known={workers.length > 0 ? problems : []}
      onSubmit={save}
      trigger={
        <Button look="ghost" size="sm" aria-label={t("groups.configure", { name })}>
          <Settings />
          {t("groups.settings")}
        </Button>
      }
    >
      {(problem) => {
        const wired = (field: (typeof FIELDS)[number]) => ({
          name: field,
          error: problem(field),
          defaultValue: texts[field],
        });
        return (
          <>
            <TextField {...wired("name")} label={t("groups.name")} required />
            <FormRow title={t("groups.network")}>
              <TextField
                {...wired("masterAddress")}
                label={t("groups.masterAddress")}
                hint={t("groups.masterAddressHint")}
                placeholder={workers[0]?.node ?? "gn6"}
                suggestions={[...new Set(workers.map(({ node }) => node))]}
              />
              <TextField
                {...wired("worldSize")}
                label={t("groups.worldSize")}
                hint={t("groups.worldSizeHint")}
                placeholder={String(workers.length)}
                inputMode="numeric"
              />
              <TextField
                {...wired("masterPort")}
                label={t("groups.masterPort")}
                hint={t("groups.masterPortHint")}
                placeholder="29500"
                inputMode="numeric"
              />
              <Field label={t("groups.backend")} error={problem("backend")}>
                {(wiring) => (
                  <select {...wiring} name="backend" className="control" defaultValue={texts.backend}>
                    <option value="nccl">{t("groups.nccl")}</option>
                    <option value="gloo">{t("groups.gloo")}</option>
                  </select>
                )}
              </Field>
            </FormRow>
            <FormRow title={t("groups.program")}>
              <TextField
                {...wired("script")}
                label={t("groups.script")}
                hint={t("groups.scriptHint")}
                placeholder="train.py"
              />
              <TextField {...wired("maxRestarts")} label={t("groups.maxRestarts")} inputMode="numeric" />
              <LinesField {...wired("args")} label={t("groups.args")} hint={t("create.argsHint")} />
              <LinesField {...wired("env")} label={t("groups.env")} hint={t("create.envHint")} />
              <LinesField {...wired("secretEnv")} label={t("create.secrets")} hint={t("groups.secretsHint")} />
            </FormRow>
          </>
        );
      }}
    </FormDialog>
  );
}
