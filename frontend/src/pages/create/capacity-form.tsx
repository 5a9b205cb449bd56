import { useQuery } from "@tanstack/react-query";
import { Wand2 } from "lucide-react";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { environmentsQuery } from "@/api/inventory";
import type { Preview } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { CheckOption } from "@/ui/check-list";
import { Field } from "@/ui/field";
import { type CapacityRequest } from "./capacity";
import { type ProblemsByField, getProblemText } from "./problems";

interface CapacityFormProps {
  capacity: CapacityRequest;
  chosen: Preview["chosen"] | undefined;
  problems: ProblemsByField;
  onChange: (capacity: CapacityRequest) => void;
  /** Selects the currently proposed environments by name. */
  onTake: () => void;
}

/**
 * Requests capacity instead of environments by name: the platform chooses at the start, and shows what it would choose
 * now.
 */
export default function CapacityForm({ capacity, chosen, problems, onChange, onTake }: CapacityFormProps) {
  const { t } = useTranslation();
  const all = useQuery(environmentsQuery).data;
  const types = useMemo(() => [...new Set((all ?? []).map(({ gpuType }) => gpuType).filter(Boolean))].sort(), [all]);
  const zones = useMemo(() => [...new Map((all ?? []).map(({ zone }) => [zone.id, zone.name]))], [all]);
  const set = (patch: Partial<CapacityRequest>) => onChange({ ...capacity, ...patch });
  const number = (name: "nodes" | "gpusPerNode" | "totalGpus") => (
    <Field
      label={t(`create.select.${name}`)}
      error={getProblemText(problems, `distributedConfig.select.${name}`)}
      className="min-w-32 flex-1"
    >
      {(wiring) => (
        <input
          {...wiring}
          name={`distributedConfig.select.${name}`}
          className="control"
          inputMode="numeric"
          autoComplete="off"
          placeholder={t("create.select.any")}
          value={capacity[name]}
          onChange={({ target }) => set({ [name]: target.value })}
        />
      )}
    </Field>
  );
  const wrong = problems.get("distributedConfig.select");
  return (
    <div className="mb-3 space-y-3 rounded-lg border bg-sunken p-3">
      <div className="flex flex-wrap gap-3">
        {number("nodes")}
        {number("gpusPerNode")}
        {number("totalGpus")}
      </div>
      <CheckboxGroup
        label={t("create.select.gpuTypes")}
        values={types.map((type) => [type, type])}
        ticked={capacity.gpuTypes}
        onChange={(gpuTypes) => set({ gpuTypes })}
      />
      <CheckboxGroup
        label={t("create.select.zones")}
        values={zones}
        ticked={capacity.zones}
        onChange={(ticked) => set({ zones: ticked })}
      />
      <div className="flex flex-wrap items-end gap-3">
        <label className="flex items-center gap-1.5 text-sm">
          <input
            type="checkbox"
            name="distributedConfig.select.sameZone"
            checked={capacity.sameZone}
            onChange={({ target }) => set({ sameZone: target.checked })}
          />
          {t("create.select.sameZone")}
        </label>
        <Field
          label={t("create.select.labels")}
          error={getProblemText(problems, "distributedConfig.select.labels")}
          className="min-w-48 flex-1"
        >
          {(wiring) => (
            <textarea
              {...wiring}
              name="distributedConfig.select.labels"
              rows={1}
              spellCheck={false}
              className="control h-auto py-1.5 font-mono"
              placeholder="rack=r1"
              value={capacity.labels}
              onChange={({ target }) => set({ labels: target.value })}
            />
          )}
        </Field>
      </div>
      {wrong && <Callout tone="bad">{wrong.map(({ message, hint }) => [message, hint].join(" ")).join(" ")}</Callout>}
      {chosen && !wrong && (
        <div role="status">
          <Callout tone={chosen.startsNow ? "ok" : "warn"}>
            <p className="font-medium">
              {chosen.startsNow ? t("create.select.startsNow") : t("create.select.waits", { number: chosen.number })}
              {!chosen.startsNow &&
                chosen.begins &&
                ` ${t("create.select.about", { at: formatDateTime(chosen.begins) })}`}
            </p>
            {!chosen.startsNow && chosen.reason && <p>{chosen.reason.message}</p>}
            <ul className="list-inside list-disc">
              {chosen.reasons.map(({ code, message }) => (
                <li key={code}>{message}</li>
              ))}
            </ul>
          </Callout>
        </div>
      )}
      {capacity.exclude.length > 0 && (
        <p className="flex flex-wrap items-center gap-2 text-sm text-muted">
          {t("create.select.excluded", { count: capacity.exclude.length })}
          <Button look="ghost" size="sm" onClick={() => set({ exclude: [] })}>
            {t("create.select.allowAll")}
          </Button>
        </p>
      )}
      <div className="flex flex-wrap items-center justify-between gap-2 text-sm text-muted">
        <span>{t("create.select.hint")}</span>
        <Button size="sm" onClick={onTake} disabled={!chosen}>
          <Wand2 />
          {t("create.select.take")}
        </Button>
      </div>
    </div>
  );
}

interface TicksProps {
  label: string;
  values: (readonly [value: string, name: string])[];
  ticked: string[];
  onChange: (ticked: string[]) => void;
}

/** Several of a few values; none means any. */
function CheckboxGroup({ label, values, ticked, onChange }: TicksProps) {
  if (values.length === 0) return null;
  return (
    <fieldset className="flex flex-wrap items-center gap-x-4 gap-y-1 text-sm">
      <legend className="float-left mr-3 font-medium">{label}</legend>
      {values.map(([value, name]) => (
        <CheckOption
          key={value}
          id={value}
          name={name}
          chosen={ticked}
          onChange={onChange}
          className="items-center gap-1.5"
        />
      ))}
    </fieldset>
  );
}
