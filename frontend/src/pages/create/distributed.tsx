import { Network } from "lucide-react";
import { lazy, Suspense } from "react";
import { useTranslation } from "react-i18next";
import type { Environment, Preview } from "@/api/types";
import { cx } from "@/lib/cx";
import { Callout } from "@/ui/badge";
import { Field } from "@/ui/field";
import { sumEnvironments } from "./aggregate";
import { createsEnvironments, countNodes } from "./draft";
import { FrameworkFields, FrameworkSelect } from "./framework-fields";
import { getProblemText } from "./problems";
import { Recommendation } from "./recommendation";
import type { SectionProps } from "./section-props";

const CrossZoneNote = lazy(() => import("./cross-zone-note"));

interface DistributedProps extends SectionProps {
  chosen: Environment[];
  preview: Preview | undefined;
  worldSize: number;
}

/** Shown from the second environment on. */
export function Distributed({ chosen, preview, worldSize, ...section }: DistributedProps) {
  const { t } = useTranslation();
  const { draft, problems, onChange } = section;
  return (
    <section
      aria-labelledby="distributed"
      className="space-y-4 rounded-xl border border-warn-line bg-warn-soft p-4 dark:bg-warn-soft/40"
    >
      <h2 id="distributed" className="flex items-center gap-2 text-base font-semibold text-warn-ink">
        <Network aria-hidden className="size-4" />
        {t("create.distributed")}
      </h2>
      <div className="grid gap-4 sm:grid-cols-2">
        {!createsEnvironments(draft) && (
          <Field label={t("create.master")} error={getProblemText(problems, "distributedConfig.masterNode")}>
            {(wiring) => (
              <select
                {...wiring}
                name="distributedConfig.masterNode"
                className="control"
                disabled={draft.capacity !== null}
                value={draft.master}
                onChange={({ target }) => onChange({ master: target.value })}
              >
                {chosen.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {name}
                  </option>
                ))}
              </select>
            )}
          </Field>
        )}
        <FrameworkSelect {...section} label={t("create.framework")} />
      </div>
      <Elastic {...section} />
      <Recommendation {...section} />
      <FrameworkFields {...section} preview={preview} worldSize={worldSize} />
      {preview?.proposal?.reasons.map((reason) => (
        <Callout key={reason.code} tone="info">
          {reason.message}
        </Callout>
      ))}
      <Callout tone="warn">{t("create.networkHint")}</Callout>
      {sumEnvironments(chosen).crossZone && (
        <Suspense>
          <CrossZoneNote chosen={chosen} />
        </Suspense>
      )}
    </section>
  );
}

/** The range of nodes. Empty: a task with a lost node waits for it. */
function Elastic({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const name = "distributedConfig.elastic";
  const isAsked = draft.minNodes !== "" || draft.maxNodes !== "";
  return (
    <fieldset>
      <legend className="mb-1 text-sm font-semibold">{t("create.elastic")}</legend>
      <p className={cx("mb-2 text-sm whitespace-pre-line", problems.has(name) ? "text-bad-ink" : "text-muted")}>
        {problems.has(name) ? getProblemText(problems, name) : t("create.elasticHint")}
      </p>
      <div className="grid gap-4 sm:grid-cols-2">
        {(["minNodes", "maxNodes"] as const).map((field) => (
          <Field key={field} label={t(`create.${field}`)} error={getProblemText(problems, `${name}.${field}`)}>
            {(wiring) => (
              <input
                {...wiring}
                name={`${name}.${field}`}
                className="control"
                inputMode="numeric"
                autoComplete="off"
                placeholder={isAsked ? { minNodes: "1", maxNodes: String(countNodes(draft)) }[field] : ""}
                value={draft[field]}
                onChange={({ target }) => onChange({ [field]: target.value })}
              />
            )}
          </Field>
        ))}
      </div>
    </fieldset>
  );
}
