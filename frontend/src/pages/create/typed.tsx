import { Field } from "@/ui/field";
import type { Draft } from "./draft";
import { textFor } from "./problems";
import type { SectionProps } from "./section";

interface TypedProps extends SectionProps {
  field: "script" | "args" | "env";
  label: string;
  hint: string;
  /** The server's name for it, where that is another. */
  control?: string;
  /** What problems to show, where that is more than the control's own. */
  errors?: keyof Draft | "entrypoint";
  placeholder?: string;
  className?: string;
}

/** A line of text in a fixed width. */
export function Line({
  draft,
  problems,
  onChange,
  field,
  label,
  hint,
  control = field,
  errors,
  placeholder,
  className,
}: TypedProps) {
  return (
    <Field label={label} hint={hint} error={textFor(problems, errors ?? control)} className={className}>
      {(wiring) => (
        <input
          {...wiring}
          name={control}
          className="control font-mono"
          autoComplete="off"
          spellCheck={false}
          placeholder={placeholder}
          value={draft[field]}
          onChange={({ target }) => onChange({ [field]: target.value })}
        />
      )}
    </Field>
  );
}

export function Lines({ draft, problems, onChange, field, label, hint, control = field, className }: TypedProps) {
  return (
    <Field label={label} hint={hint} error={textFor(problems, control)} className={className}>
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
