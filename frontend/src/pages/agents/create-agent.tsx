import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { type AgentTokenRequest, createAgent, invalidateAgents } from "@/api/agents";
import { meQuery } from "@/api/session";
import { Callout } from "@/ui/badge";
import { CheckList } from "@/ui/check-list";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { CopyText } from "@/ui/copy-button";
import { FileTabs } from "@/ui/file-tabs";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { buildClientFiles } from "./client-setup";
import { PURSE_FIELDS, PurseFields, readPurse } from "./purse-fields";

const LIFETIMES = [1, 7, 30, 90, 365] as const;
/** The scopes of an agent that reads and creates nothing. */
const READING = [
  "agents:read",
  "data:read",
  "environments:read",
  "files:read",
  "outputs:read",
  "projects:read",
  "runs:read",
  "tasks:read",
  "usage:read",
] as const;

/** Creates a token with a purse, and shows it once with what a client needs. */
export function CreateAgent() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const projects = (useQuery(meQuery).data?.projects ?? []).filter(({ role }) => role !== "viewer");
  const first = projects.length === 1 ? projects.map(({ id }) => id) : [];
  const [chosen, setChosen] = useState<string[]>();
  const [environments, setEnvironments] = useState<string[] | null>(null);
  const projectIds = chosen ?? first;
  const create = async (texts: Record<string, string>) => {
    const { name = "", agent = "", days, rights } = texts;
    const request: AgentTokenRequest = {
      name,
      agent,
      projectIds,
      ...readPurse(texts, environments),
      ...(days && { expiresInDays: Number(days) }),
      ...(rights === "read" && { scopes: [...READING] }),
    };
    const made = await createAgent(request);
    await invalidateAgents(client);
    return made;
  };
  const onOpenChange = (open: boolean) => {
    if (!open) return;
    setChosen(undefined);
    setEnvironments(null);
  };
  return (
    <FormDialog
      title={t("agents.create")}
      description={t("agents.createHint")}
      submit={t("agents.create")}
      wide
      fields={["name", "agent", "projectIds", "scopes", "expiresInDays", ...PURSE_FIELDS]}
      onSubmit={create}
      onOpenChange={onOpenChange}
      result={({ token }) => <MadeAgent token={token} />}
      trigger={
        <Button look="primary">
          <Plus />
          {t("agents.create")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <div className="grid items-start gap-4 sm:grid-cols-2">
            <TextField name="name" label={t("agents.name")} error={problem("name")} maxLength={100} required />
            <TextField
              name="agent"
              label={t("agents.agent")}
              hint={t("agents.agentHint")}
              error={problem("agent")}
              maxLength={100}
            />
            <Field label={t("agents.rights")} error={problem("scopes")}>
              {(wiring) => (
                <select {...wiring} name="rights" className="control" defaultValue="train">
                  <option value="train">{t("agents.rightsOf.train")}</option>
                  <option value="read">{t("agents.rightsOf.read")}</option>
                </select>
              )}
            </Field>
            <Field label={t("agents.expires")} error={problem("expiresInDays")}>
              {(wiring) => (
                <select {...wiring} name="days" className="control" defaultValue="30">
                  {LIFETIMES.map((days) => (
                    <option key={days} value={days}>
                      {t("unit.day", { count: days })}
                    </option>
                  ))}
                  <option value="">{t("agents.never")}</option>
                </select>
              )}
            </Field>
          </div>
          <fieldset className="text-sm">
            <legend className="font-medium">{t("agents.projects")}</legend>
            {problem("projectIds") && <p className="mt-1 text-bad-ink">{problem("projectIds")}</p>}
            <CheckList items={projects} chosen={projectIds} onChange={setChosen} className="mt-1" />
          </fieldset>
          <PurseFields environments={environments} onEnvironments={setEnvironments} problem={problem} />
        </>
      )}
    </FormDialog>
  );
}

function MadeAgent({ token }: { token: string }) {
  const { t } = useTranslation();
  return (
    <>
      <Callout tone="ok" role="status">
        <p className="font-medium">{t("settings.tokenOnce")}</p>
        <CopyText text={token} className="mt-1" />
      </Callout>
      <div className="space-y-2">
        <p className="text-sm text-muted">{t("agents.setupHint")}</p>
        <FileTabs files={buildClientFiles(location.origin, token)} />
      </div>
    </>
  );
}
