import { Field } from "@/ui/field";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";

interface LineProps {
  /** The API's name of the field. */
  name: string;
  label: string;
  hint: string;
  error?: string;
  placeholder?: string;
  className?: string;
  value: string;
  onText: (text: string) => void;
}

/** A line of text in a monospace font. */
export function MonospaceInput({ name, label, hint, error, placeholder, className, value, onText }: LineProps) {
  return (
    <Field label={label} hint={hint} error={error} className={className}>
      {(wiring) => (
        <input
          {...wiring}
          name={name}
          className="control font-mono"
          autoComplete="off"
          spellCheck={false}
          placeholder={placeholder}
          value={value}
          onChange={({ target }) => onText(target.value)}
        />
      )}
    </Field>
  );
}

interface LinesProps extends SectionProps {
  field: "args" | "env";
  label: string;
  hint: string;
  /** The API's name of the field, if it differs. */
  control?: string;
  className?: string;
}

export function MonospaceTextarea({
  draft,
  problems,
  onChange,
  field,
  label,
  hint,
  control = field,
  className,
}: LinesProps) {
  return (
    <Field label={label} hint={hint} error={getProblemText(problems, control)} className={className}>
      {(wiring) => (
        <textarea
          {...wiring}
          name={control}
          rows={3}
          spellCheck={false}
          className="control h-auto py-2 font-mono"
          value={draft[field]}
          onChange={({ target }) => onChange({ [field]: target.value })}
        />
      )}
    </Field>
  );
}
