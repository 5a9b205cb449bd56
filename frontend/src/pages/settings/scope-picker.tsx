import { useTranslation } from "react-i18next";
import { Field } from "@/ui/field";
import { findPreset, type Preset, PRESETS, RESOURCES, toggleScope } from "./token-scopes";

const CHOICES = ["everything", "readOnly", "pipeline", "notebook", "own"] as const;

interface Props {
  /** True: all rights cannot be chosen. */
  limited?: boolean;
  /** Null: all rights. */
  scopes: string[] | null;
  onChange: (scopes: string[] | null) => void;
  error: string | undefined;
}

/** What a token may do: a preset, or single scopes. */
export function ScopePicker({ limited = false, scopes, onChange, error }: Props) {
  const { t } = useTranslation();
  const preset = scopes === null ? "everything" : (findPreset(scopes) ?? "own");
  const choose = (value: string) => {
    if (value === "everything") onChange(null);
    else if (value === "own") onChange(scopes ?? []);
    else onChange([...PRESETS[value as Preset]]);
  };
  return (
    <>
      <Field label={t("apiTokens.rights")} hint={t(`apiTokens.presetHint.${preset}`)} error={error}>
        {(wiring) => (
          <select {...wiring} className="control" value={preset} onChange={({ target }) => choose(target.value)}>
            {CHOICES.filter((each) => !limited || each !== "everything").map((each) => (
              <option key={each} value={each}>
                {t(`apiTokens.preset.${each}`)}
              </option>
            ))}
          </select>
        )}
      </Field>
      {scopes && (
        <fieldset className="max-h-56 overflow-y-auto rounded-md border px-3 py-1">
          <legend className="sr-only">{t("apiTokens.scopes")}</legend>
          <ul className="divide-y text-sm">
            {RESOURCES.map(([resource, verbs]) => (
              <li key={resource} className="flex flex-wrap items-center gap-x-4 gap-y-1 py-1.5">
                <span className="min-w-0 flex-1 basis-40">{t(`apiTokens.resource.${resource}`)}</span>
                {verbs.map((verb) => {
                  const scope = `${resource}:${verb}`;
                  const contained = verb === "read" && scopes.includes(`${resource}:write`);
                  return (
                    <label key={verb} className="flex items-center gap-1.5">
                      <input
                        type="checkbox"
                        aria-label={`${t(`apiTokens.resource.${resource}`)}: ${t(`apiTokens.verb.${verb}`)}`}
                        checked={contained || scopes.includes(scope)}
                        disabled={contained}
                        onChange={({ target }) => onChange(toggleScope(scopes, scope, target.checked))}
                      />
                      {t(`apiTokens.verb.${verb}`)}
                    </label>
                  );
                })}
              </li>
            ))}
          </ul>
        </fieldset>
      )}
    </>
  );
}
