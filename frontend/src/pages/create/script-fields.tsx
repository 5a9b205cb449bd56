import { useTranslation } from "react-i18next";
import CodeFields from "./code-source";
import { LaunchCommandField } from "./launch-command-field";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";
import { MonospaceInput, MonospaceTextarea } from "./monospace-inputs";

/** The user's own script: its code, and how it is started. */
export default function ScriptFields(section: SectionProps) {
  const { t } = useTranslation();
  const { draft, problems, onChange } = section;
  return (
    <>
      <CodeFields {...section} />
      <LaunchCommandField {...section} />
      <MonospaceInput
        name="entrypoint.script"
        value={draft.script}
        onText={(script) => onChange({ script })}
        error={getProblemText(problems, "entrypoint")}
        label={t("create.script")}
        hint={t("create.scriptHint")}
        placeholder="train.py"
        className="sm:col-start-1"
      />
      <MonospaceTextarea
        {...section}
        field="args"
        control="entrypoint.args"
        label={t("create.args")}
        hint={t("create.argsHint")}
      />
    </>
  );
}
