import { useTranslation } from "react-i18next";
import type { Preview } from "@/api/types";
import { Card } from "@/ui/card";
import { RankPlacement } from "@/ui/rank-placement";
import { getProblemText } from "./problems";
import { RadioGroup } from "./radio-group";
import type { SectionProps } from "./section-props";
import { MonospaceInput } from "./monospace-inputs";

const RUN_IN_VALUES = ["auto", "environment", "beside"] as const;
const RUN_IN = "distributedConfig.runIn";
const PYTHON = "distributedConfig.python";

/** Where the ranks run. Shown only if there is a choice. */
export function RunInField({ draft, problems, onChange, preview }: SectionProps & { preview: Preview | undefined }) {
  const { t } = useTranslation();
  const places = preview?.environments ?? [];
  const isAsked = draft.runIn !== "" || draft.python !== "" || problems.has(RUN_IN) || problems.has(PYTHON);
  if (!isAsked && !places.some(({ runsIn }) => runsIn)) return null;
  return (
    <Card title={t("runsIn.title")}>
      <div className="space-y-4">
        <RadioGroup
          legend={t("runsIn.title")}
          name={RUN_IN}
          value={draft.runIn || "auto"}
          options={RUN_IN_VALUES.map((value) => ({ value, label: t(`runsIn.choice.${value}`) }))}
          error={getProblemText(problems, RUN_IN)}
          className="[&>legend]:sr-only"
          onChange={(value) => onChange({ runIn: value === "auto" ? "" : value })}
        />
        <RankPlacement places={places} />
        {draft.runIn === "" && <p className="text-sm text-muted">{t("runsIn.hint")}</p>}
        {(draft.runIn !== "beside" || draft.python !== "") && (
          <MonospaceInput
            name={PYTHON}
            label={t("runsIn.python")}
            hint={t("runsIn.pythonHint")}
            error={getProblemText(problems, PYTHON)}
            placeholder={t("create.automatic")}
            value={draft.python}
            onText={(python) => onChange({ python })}
          />
        )}
      </div>
    </Card>
  );
}
