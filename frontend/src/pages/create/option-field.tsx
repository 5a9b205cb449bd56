import { useTranslation } from "react-i18next";
import { Field } from "@/ui/field";
import { formatRange, type OptionRule, formatOption } from "./options";

interface OptionFieldProps {
  name: string;
  rule: OptionRule;
  value: string;
  /** The value that applies to an empty field, if it is not the schema's default. */
  proposed: unknown;
  error: string | undefined;
  onChange: (value: string) => void;
}

/** The control for an option by its JSON Schema. Empty: the platform decides. */
export function OptionField({ name, rule, value, proposed, error, onChange }: OptionFieldProps) {
  const { t } = useTranslation();
  const unset = proposed ?? rule.default;
  const choices = rule.enum ?? (rule.type === "boolean" ? [true, false] : undefined);
  const word = (choice: unknown) =>
    choice === true
      ? t("create.on")
      : choice === false
        ? t("create.off")
        : (rule.enumTitles?.[formatOption(choice)] ?? formatOption(choice));
  const unsetText =
    unset === undefined || typeof unset === "object"
      ? t("create.automatic")
      : t(proposed === undefined ? "create.defaultValue" : "create.proposedValue", { value: word(unset) });
  const isJson = rule.type === "object" || rule.type === "array";
  const label = rule.title ?? name;
  return (
    <Field
      label={label}
      hint={rule.description ?? (isJson ? t("create.jsonHint") : getHint(name, label, formatRange(rule)))}
      error={error}
      className={isJson ? "sm:col-span-2" : undefined}
    >
      {(wiring) => {
        const shared = { ...wiring, name: `distributedConfig.options.${name}`, value };
        if (choices)
          return (
            <select {...shared} className="control" onChange={({ target }) => onChange(target.value)}>
              <option value="">{unsetText}</option>
              {choices.map((choice) => (
                <option key={String(choice)} value={String(choice)}>
                  {word(choice)}
                </option>
              ))}
            </select>
          );
        if (isJson)
          return (
            <textarea
              {...shared}
              rows={3}
              spellCheck={false}
              placeholder="{}"
              className="control h-auto py-2 font-mono"
              onChange={({ target }) => onChange(target.value)}
            />
          );
        return (
          <input
            {...shared}
            className="control"
            autoComplete="off"
            inputMode={rule.type === "string" ? "text" : "decimal"}
            placeholder={unsetText}
            onChange={({ target }) => onChange(target.value)}
          />
        );
      }}
    </Field>
  );
}

/** Returns the option's API name and its allowed values. */
function getHint(name: string, label: string, allowed: string): string | undefined {
  return [name !== label && name, allowed].filter(Boolean).join(" · ") || undefined;
}
