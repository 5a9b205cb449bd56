import { useTranslation } from "react-i18next";
import type { components } from "@/api/schema";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Collapsible } from "@/ui/collapsible";
import { Field } from "@/ui/field";
import { formatVariables, NO_RESUME, type ResumeDraft } from "./draft";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";

export type ResumeProposal = components["schemas"]["TaskPreview"]["resume"];

interface ResumeFieldsProps extends SectionProps {
  /** How the script seems to take a checkpoint. */
  proposal: ResumeProposal | undefined;
}

/** How a script that knows nothing of the platform is told to go on from a checkpoint. */
export function ResumeFields({ draft, problems, onChange, proposal }: ResumeFieldsProps) {
  const { t } = useTranslation();
  const { resume } = draft;
  const change = (patch: Partial<ResumeDraft>) => onChange({ resume: { ...resume, ...patch } });
  const given = resume.itself || resume.args.trim() !== "" || resume.env.trim() !== "";
  const error = getProblemText(problems, "entrypoint.resume");
  return (
    <Collapsible
      title={t("entry.resume")}
      wanted={given || Boolean(proposal) || Boolean(error)}
      className="sm:col-span-2"
      summaryClassName="text-sm font-medium"
    >
      <div className="mt-2 grid gap-3 sm:grid-cols-2">
        <p className="text-sm text-muted sm:col-span-2">{t("entry.resumeHint")}</p>
        {proposal && !given && (
          <div className="sm:col-span-2">
            <Callout tone="info">
              <p>{proposal.message}</p>
              <code className="my-1 block text-xs break-all">
                {proposal.itself
                  ? t("entry.resumeItself")
                  : [...Object.entries(proposal.env).map(([name, value]) => `${name}=${value}`), ...proposal.args].join(
                      " ",
                    )}
              </code>
              <Button
                size="sm"
                onClick={() =>
                  onChange({
                    resume: {
                      args: proposal.args.join("\n"),
                      env: formatVariables(proposal.env),
                      itself: proposal.itself,
                    },
                  })
                }
              >
                {t("entry.resumeAccept")}
              </Button>
            </Callout>
          </div>
        )}
        <Lines
          name="entrypoint.resume.args"
          label={t("entry.resumeArgs")}
          placeholder={"--resume_from_checkpoint\n{path}"}
          value={resume.args}
          error={error}
          onText={(args) => change({ args })}
        />
        <Lines
          name="entrypoint.resume.env"
          label={t("entry.resumeEnv")}
          placeholder="RESUME={path}"
          value={resume.env}
          onText={(env) => change({ env })}
        />
        <label className="flex items-center gap-2 text-sm sm:col-span-2">
          <input
            type="checkbox"
            name="entrypoint.resume.itself"
            checked={resume.itself}
            onChange={({ target }) =>
              target.checked ? onChange({ resume: { ...NO_RESUME, itself: true } }) : change({ itself: false })
            }
          />
          {t("entry.resumeItself")}
        </label>
      </div>
    </Collapsible>
  );
}

interface LinesProps {
  name: string;
  label: string;
  placeholder: string;
  value: string;
  error?: string | undefined;
  onText: (text: string) => void;
}

function Lines({ name, label, placeholder, value, error, onText }: LinesProps) {
  return (
    <Field label={label} error={error}>
      {(wiring) => (
        <textarea
          {...wiring}
          name={name}
          rows={2}
          spellCheck={false}
          className="control h-auto py-2 font-mono"
          placeholder={placeholder}
          value={value}
          onChange={({ target }) => onText(target.value)}
        />
      )}
    </Field>
  );
}
