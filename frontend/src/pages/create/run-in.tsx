import { useTranslation } from "react-i18next";
import type { Preview } from "@/api/types";
import { Card } from "@/ui/card";
import { WhereRanksRun } from "@/ui/runs-in";
import { textFor } from "./problems";
import { Radios } from "./radios";
import type { SectionProps } from "./section";
import { Line } from "./typed";

const WAYS = ["auto", "environment", "beside"] as const;
const RUN_IN = "distributedConfig.runIn";
const PYTHON = "distributedConfig.python";

/** Where the ranks run; only where there is a choice, or one was made. */
export function RunIn({ draft, problems, onChange, preview }: SectionProps & { preview: Preview | undefined }) {
  const { t } = useTranslation();
  const places = preview?.environments ?? [];
  const isAsked = draft.runIn !== "" || draft.python !== "" || problems.has(RUN_IN) || problems.has(PYTHON);
  if (!isAsked && !places.some(({ runsIn }) => runsIn)) return null;
  return (
    <Card title={t("runsIn.title")}>
      <div className="space-y-4">
        <Radios
          legend={t("runsIn.title")}
          name={RUN_IN}
          value={draft.runIn || "auto"}
          options={WAYS.map((value) => ({ value, label: t(`runsIn.choice.${value}`) }))}
          error={textFor(problems, RUN_IN)}
          className="[&>legend]:sr-only"
          onChange={(value) => onChange({ runIn: value === "auto" ? "" : value })}
        />
        <WhereRanksRun places={places} />
        {draft.runIn === "" && <p className="text-sm text-muted">{t("runsIn.hint")}</p>}
        {(draft.runIn !== "beside" || draft.python !== "") && (
          <Line
            name={PYTHON}
            label={t("runsIn.python")}
            hint={t("runsIn.pythonHint")}
            error={textFor(problems, PYTHON)}
            placeholder={t("create.automatic")}
            value={draft.python}
            onText={(python) => onChange({ python })}
          />
        )}
      </div>
    </Card>
  );
}
