import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { TokenRequest } from "@/api/types";
import { Callout } from "@/ui/badge";
import { CheckList } from "@/ui/check-list";
import { Button } from "@/ui/button";
import { CopyText } from "@/ui/copy-button";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { ScopePicker } from "./scope-picker";

const LIFETIMES = [7, 30, 90, 365] as const;

interface Props {
  /** The token's projects are chosen among these; empty: they are not chosen. */
  projects: readonly { id: string; name: string }[];
  /** What is chosen first; null: all rights. */
  first: string[] | null;
  /** Returns the token's value. */
  onCreate: (request: TokenRequest) => Promise<string>;
  /** The button's name, where several have the same text. */
  label?: string;
}

/** A button that opens a form for a token, and shows its value once. */
export function CreateToken({ projects, first, onCreate, label }: Props) {
  const { t } = useTranslation();
  const [scopes, setScopes] = useState(first);
  const [chosen, setChosen] = useState<string[]>([]);
  const create = ({ name = "", days }: Record<string, string>) =>
    onCreate({
      name,
      ...(days && { expiresInDays: Number(days) }),
      ...(scopes && { scopes }),
      ...(chosen.length > 0 && { projects: chosen }),
    });
  const onOpenChange = (open: boolean) => {
    if (!open) return;
    setScopes(first);
    setChosen([]);
  };
  return (
    <FormDialog
      title={t("settings.createToken")}
      submit={t("settings.create")}
      wide
      fields={["name", "expiresInDays", "scopes", "projects"]}
      onSubmit={create}
      onOpenChange={onOpenChange}
      result={(token) => <MadeToken token={token} />}
      trigger={
        <Button size="sm" aria-label={label}>
          <Plus />
          {t("settings.createToken")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField name="name" label={t("settings.tokenName")} error={problem("name")} maxLength={100} required />
          <Field label={t("settings.expires")} error={problem("expiresInDays")}>
            {(wiring) => (
              <select {...wiring} name="days" className="control" defaultValue="90">
                {LIFETIMES.map((days) => (
                  <option key={days} value={days}>
                    {t("unit.day", { count: days })}
                  </option>
                ))}
                <option value="">{t("settings.never")}</option>
              </select>
            )}
          </Field>
          <ScopePicker scopes={scopes} onChange={setScopes} error={problem("scopes")} />
          {projects.length > 0 && (
            <fieldset className="text-sm">
              <legend className="font-medium">{t("apiTokens.projects")}</legend>
              <p className="mt-1 text-muted">{problem("projects") ?? t("apiTokens.projectsHint")}</p>
              <CheckList items={projects} chosen={chosen} onChange={setChosen} className="mt-1" />
            </fieldset>
          )}
        </>
      )}
    </FormDialog>
  );
}

function MadeToken({ token }: { token: string }) {
  const { t } = useTranslation();
  return (
    <Callout tone="ok" role="status">
      <p className="font-medium">{t("settings.tokenOnce")}</p>
      <CopyText text={token} className="mt-1" />
    </Callout>
  );
}
