import { useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { createDirectory, type DirectoryRequest, invalidateDirectories } from "@/api/directories";
import type { IdentityProvider } from "@/api/identity";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { NewToken } from "./parts";

/** What an identity provider knows the people of a directory by. */
export type Uid = NonNullable<DirectoryRequest["uidAttribute"]>;
const UIDS: Uid[] = ["externalId", "userName", ""];

/** Adds a directory, and shows what to enter there. */
export function CreateDirectory({ providers }: { providers: IdentityProvider[] }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const create = async ({ name = "", provider = "", uid = "" }: Record<string, string>) => {
    const made = await createDirectory({ name, provider, uidAttribute: uid as Uid });
    await invalidateDirectories(client);
    return made.token.token;
  };
  return (
    <FormDialog
      title={t("directories.add")}
      submit={t("directories.add")}
      fields={["name", "provider", "uidAttribute"]}
      onSubmit={create}
      result={(token) => <NewToken token={token} />}
      trigger={
        <Button size="sm">
          <Plus />
          {t("directories.add")}
        </Button>
      }
    >
      {(problem) => <DirectoryFields providers={providers} problem={problem} />}
    </FormDialog>
  );
}

interface DirectoryFieldsProps {
  providers: IdentityProvider[];
  problem: (field: string) => string | undefined;
}

function DirectoryFields({ providers, problem }: DirectoryFieldsProps) {
  const { t } = useTranslation();
  const [provider, setProvider] = useState("");
  return (
    <>
      <TextField name="name" label={t("directories.name")} required maxLength={100} error={problem("name")} />
      <Field label={t("directories.provider")} hint={t("directories.providerHint")} error={problem("provider")}>
        {(wiring) => (
          <select
            {...wiring}
            name="provider"
            className="control"
            value={provider}
            onChange={({ target }) => setProvider(target.value)}
          >
            <option value="">{t("directories.noProvider")}</option>
            {providers.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Field>
      {provider && (
        <Field label={t("directories.uid")} hint={t("directories.uidHint")} error={problem("uidAttribute")}>
          {(wiring) => (
            <select {...wiring} name="uid" className="control">
              {UIDS.map((each) => (
                <option key={each} value={each}>
                  {t(`directories.uidOf.${each || "none"}`)}
                </option>
              ))}
            </select>
          )}
        </Field>
      )}
    </>
  );
}
