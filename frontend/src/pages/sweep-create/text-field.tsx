import type { ReactNode } from "react";
import { Field } from "@/ui/field";

interface TextFieldProps {
  /** The API's name of the field. */
  name: string;
  label: string;
  hint?: ReactNode;
  error: string | undefined;
  placeholder?: string | undefined;
  value: string;
  /** What it holds; a number by default. */
  kind?: "number" | "text" | "values";
  type?: string;
  className?: string;
  onText: (text: string) => void;
}

/** A line of text. */
export function TextField({
  name,
  label,
  hint,
  error,
  placeholder,
  value,
  kind = "number",
  type = "text",
  className,
  onText,
}: TextFieldProps) {
  return (
    <Field label={label} hint={hint} error={error} {...(className && { className })}>
      {(wiring) => (
        <input
          {...wiring}
          name={name}
          type={type}
          className={kind === "values" ? "control font-mono" : "control"}
          inputMode={kind === "number" ? "decimal" : "text"}
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

interface SelectFieldProps<Value extends string> {
  name: string;
  label: string;
  hint?: ReactNode;
  error?: string | undefined;
  value: string;
  options: readonly (readonly [Value, string])[];
  className?: string;
  onChoose: (value: Value) => void;
}

/** One of a few values. */
export function SelectField<Value extends string>({
  name,
  label,
  hint,
  error,
  value,
  options,
  className,
  onChoose,
}: SelectFieldProps<Value>) {
  return (
    <Field label={label} hint={hint} error={error} {...(className && { className })}>
      {(wiring) => (
        <select
          {...wiring}
          name={name}
          className="control"
          value={value}
          onChange={({ target }) => onChoose(target.value as Value)}
        >
          {options.map(([each, text]) => (
            <option key={each} value={each}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
