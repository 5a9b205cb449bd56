import { useQuery } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { secretsQuery } from "@/api/account";
import { environmentsQuery } from "@/api/inventory";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";

/** Variables that get the values of project secrets. */
export function SecretVariables({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const environments = useQuery(environmentsQuery).data;
  const project = environments?.find(({ id }) => id === draft.selected[0])?.projectId;
  const known = useQuery({ ...secretsQuery(project ?? ""), enabled: project !== undefined }).data ?? [];
  const rows = draft.secrets;
  const change = (index: number, patch: Partial<(typeof rows)[number]>) =>
    onChange({ secrets: rows.map((row, at) => (at === index ? { ...row, ...patch } : row)) });
  return (
    <div className="space-y-2">
      <Field
        label={t("create.secrets")}
        hint={project === undefined ? t("create.secretsFirst") : t("create.secretsHint")}
        error={getProblemText(problems, "secretEnv")}
      >
        {(wiring) => (
          <div {...wiring} role="group" aria-label={t("create.secrets")} className="space-y-2">
            {rows.map((row, index) => (
              <div key={index} className="flex items-center gap-2">
                <input
                  name={row.variable ? `secretEnv.${row.variable}` : "secretEnv"}
                  aria-label={t("create.secretVariable")}
                  className="control min-w-0 flex-1 font-mono"
                  autoComplete="off"
                  spellCheck={false}
                  placeholder="WANDB_API_KEY"
                  value={row.variable}
                  onChange={({ target }) => change(index, { variable: target.value })}
                />
                <select
                  aria-label={t("create.secretOf", { name: row.variable || "–" })}
                  className="control min-w-0 flex-1"
                  value={row.secret}
                  onChange={({ target }) => change(index, { secret: target.value })}
                >
                  {[...new Set(["", row.secret, ...known.map(({ name }) => name)])].map((name) => (
                    <option key={name} value={name}>
                      {name || t("create.chooseSecret")}
                    </option>
                  ))}
                </select>
                <Button
                  look="ghost"
                  size="icon"
                  aria-label={t("create.removeSecret", { name: row.variable || "–" })}
                  onClick={() => onChange({ secrets: rows.filter((_, at) => at !== index) })}
                >
                  <X />
                </Button>
              </div>
            ))}
          </div>
        )}
      </Field>
      <Button size="sm" onClick={() => onChange({ secrets: [...rows, { variable: "", secret: "" }] })}>
        <Plus />
        {t("create.addSecret")}
      </Button>
    </div>
  );
}
