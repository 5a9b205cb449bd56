import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { parseLines } from "@/lib/parse-input";
import { Button } from "@/ui/button";
import CodeFields from "./code-source";
import { LaunchCommandField } from "./launch-command-field";
import { getProblemText } from "./problems";
import { RadioGroup } from "./radio-group";
import { ResumeFields, type ResumeProposal } from "./resume-fields";
import type { SectionProps } from "./section-props";
import { MonospaceInput, MonospaceTextarea } from "./monospace-inputs";

interface ScriptFieldsProps extends SectionProps {
  /** Arguments that the script declares for its process's place and is not given. */
  missingArguments: string[] | undefined;
  /** How the script seems to take a checkpoint. */
  resumeProposal: ResumeProposal | undefined;
}

/** The user's own script: its code, and how it is started. */
export default function ScriptFields({ missingArguments, resumeProposal, ...section }: ScriptFieldsProps) {
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
      <RadioGroup
        legend={t("entry.processes")}
        name="entrypoint.processes"
        value={draft.processes}
        options={[
          { value: "gpu", label: t("entry.perGpu") },
          { value: "node", label: t("entry.perNode") },
        ]}
        onChange={(processes) => onChange({ processes })}
      />
      {(draft.processes === "node" || draft.command) && (
        <MonospaceInput
          name="entrypoint.command"
          value={draft.command}
          onText={(command) => onChange({ command })}
          label={t("entry.command")}
          hint={t("entry.commandHint")}
          placeholder="torchrun --nproc_per_node={nproc_per_node} train.py"
          className="sm:col-span-2"
        />
      )}
      <MonospaceTextarea
        {...section}
        field="args"
        control="entrypoint.args"
        label={t("create.args")}
        hint={t("create.argsHint")}
      />
      {missingArguments?.map((argument) => (
        <Button
          key={argument}
          size="sm"
          onClick={() => onChange({ args: [...parseLines(draft.args), argument].join("\n") })}
        >
          <Plus aria-hidden />
          {t("create.addArgument", { argument })}
        </Button>
      ))}
      <ResumeFields {...section} proposal={resumeProposal} />
    </>
  );
}
