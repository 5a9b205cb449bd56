import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { AgentToken, PurseChange } from "@/api/agents";
import { environmentsQuery } from "@/api/inventory";
import { parseNumber } from "@/lib/parse-input";
import { FormRow, TextField } from "@/ui/form-dialog";
import { CheckList } from "@/ui/check-list";

export const PURSE_FIELDS = ["gpuHours", "money", "maxRunning", "preemptibleOnly", "environments"] as const;
const MAX_LISTED = 50;

/** Returns the limits that the form's texts describe; what is no number is sent as it was typed. */
export function readPurse(texts: Record<string, string>, environments: string[] | null): PurseChange {
  const number = (text = "") => (text === "" ? null : (parseNumber(text) as number));
  return {
    gpuHours: number(texts.gpuHours),
    money: texts.money || null,
    maxRunning: number(texts.maxRunning),
    preemptibleOnly: texts.preemptibleOnly !== undefined,
    environments,
  };
}

interface Props {
  purse?: AgentToken["purse"];
  environments: string[] | null;
  onEnvironments: (ids: string[] | null) => void;
  problem: (field: string) => string | undefined;
}

/** The limits of a purse. */
export function PurseFields({ purse, environments, onEnvironments, problem }: Props) {
  const { t } = useTranslation();
  return (
    <>
      <FormRow title={t("agents.purse")}>
        <TextField
          name="gpuHours"
          label={t("agents.gpuHours")}
          hint={t("agents.emptyHint")}
          error={problem("gpuHours")}
          defaultValue={purse?.gpuHours ?? undefined}
          maxLength={20}
        />
        <TextField
          name="money"
          label={t("agents.money")}
          hint={t("agents.moneyHint")}
          error={problem("money")}
          defaultValue={purse?.money ?? undefined}
          maxLength={20}
        />
        <TextField
          name="maxRunning"
          label={t("agents.maxRunning")}
          hint={t("agents.maxRunningHint")}
          error={problem("maxRunning")}
          defaultValue={purse?.maxRunning ?? undefined}
          inputMode="numeric"
          maxLength={5}
        />
        <label className="flex items-center gap-2 text-sm sm:pt-7">
          <input type="checkbox" name="preemptibleOnly" defaultChecked={purse?.preemptibleOnly} />
          {t("agents.preemptible")}
        </label>
      </FormRow>
      <Environments chosen={environments} onChange={onEnvironments} error={problem("environments")} />
    </>
  );
}

interface EnvironmentsProps {
  chosen: string[] | null;
  onChange: (ids: string[] | null) => void;
  error: string | undefined;
}

function Environments({ chosen, onChange, error }: EnvironmentsProps) {
  const { t } = useTranslation();
  return (
    <fieldset className="space-y-2 text-sm">
      <legend className="font-medium">{t("agents.environments")}</legend>
      {error && <p className="text-bad-ink">{error}</p>}
      <label className="flex items-center gap-2">
        <input type="radio" checked={chosen === null} onChange={() => onChange(null)} />
        {t("agents.allEnvironments")}
      </label>
      <label className="flex items-center gap-2">
        <input type="radio" checked={chosen !== null} onChange={() => onChange(chosen ?? [])} />
        {t("agents.onlyThese")}
      </label>
      {chosen && <EnvironmentList chosen={chosen} onChange={onChange} />}
    </fieldset>
  );
}

function EnvironmentList({ chosen, onChange }: { chosen: string[]; onChange: (ids: string[]) => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const known = useQuery(environmentsQuery).data ?? [];
  const wanted = text.trim().toLowerCase();
  const matching = known.filter(({ id, name }) => `${name} ${id}`.toLowerCase().includes(wanted));
  const listed = [
    ...matching.filter(({ id }) => chosen.includes(id)),
    ...matching.filter(({ id }) => !chosen.includes(id)),
  ].slice(0, MAX_LISTED);
  return (
    <>
      <input
        type="search"
        className="control"
        aria-label={t("agents.searchEnvironments")}
        placeholder={t("agents.searchEnvironments")}
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
      <CheckList items={listed} chosen={chosen} onChange={onChange} className="rounded-md border px-3 py-2" />
    </>
  );
}
