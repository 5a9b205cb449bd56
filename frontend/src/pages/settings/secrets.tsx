import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { accountKeys, saveSecret, removeSecret, secretsQuery } from "@/api/account";
import type { Secret } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Button } from "@/ui/button";
import { LoadError, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { RemovableRow } from "./removable-row";

interface SecretsProps {
  project: string;
  mayChange: boolean;
}

/** Names of secrets. Values can be set and are never shown. */
export function Secrets({ project, mayChange }: SecretsProps) {
  const { t } = useTranslation();
  const secrets = useQuery(secretsQuery(project));
  return (
    <section className="mt-4 border-t pt-3">
      <div className="flex items-center justify-between gap-3">
        <h3 className="text-sm font-semibold">{t("settings.secrets")}</h3>
        {mayChange && (
          <SetSecret
            project={project}
            trigger={
              <Button size="sm">
                <KeyRound />
                {t("settings.setSecret")}
              </Button>
            }
          />
        )}
      </div>
      <p className="mt-1 text-xs text-muted">{t("settings.secretsHint")}</p>
      {secrets.isError && <LoadError error={secrets.error} retry={() => void secrets.refetch()} />}
      <ul className="mt-1 divide-y text-sm" aria-label={t("settings.secrets")}>
        {secrets.data?.map((secret) => (
          <SecretRow key={secret.name} project={project} secret={secret} mayChange={mayChange} />
        ))}
      </ul>
    </section>
  );
}

function SecretRow({ project, secret, mayChange }: SecretsProps & { secret: Secret }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => removeSecret(project, secret.name),
    onError: (error: Error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: accountKeys.secrets(project) }),
  });
  return (
    <RemovableRow
      name={<span className="font-mono">{secret.name}</span>}
      label={t("settings.removeSecret", { name: secret.name })}
      title={t("settings.removeSecretTitle", { name: secret.name })}
      hint={t("settings.removeSecretHint")}
      remove={mayChange ? remove : undefined}
    >
      <span className="text-xs text-muted">
        {t("settings.secretSet", { by: secret.updatedBy ?? "–", at: formatDateTime(secret.updatedAt) })}
      </span>
      {mayChange && (
        <SetSecret
          project={project}
          name={secret.name}
          trigger={<Button size="sm">{t("settings.replaceSecret")}</Button>}
        />
      )}
    </RemovableRow>
  );
}

function SetSecret({ project, name, trigger }: { project: string; name?: string; trigger: ReactNode }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const set = async (texts: Record<string, string>) => {
    await saveSecret(project, name ?? texts.name ?? "", texts.value ?? "");
    await client.invalidateQueries({ queryKey: accountKeys.secrets(project) });
  };
  return (
    <FormDialog
      title={name ? t("settings.replaceSecretTitle", { name }) : t("settings.setSecret")}
      description={t("settings.setSecretHint")}
      submit={t("settings.saveSecret")}
      fields={["name", "value"]}
      onSubmit={set}
      trigger={trigger}
    >
      {(problem) => (
        <>
          {!name && (
            <TextField
              name="name"
              label={t("settings.secretName")}
              placeholder="wandb"
              error={problem("name")}
              required
            />
          )}
          <Field label={t("settings.secretValue")} error={problem("value")}>
            {(wiring) => (
              <input
                {...wiring}
                name="value"
                type="password"
                autoComplete="new-password"
                className="control"
                required
              />
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}
