import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { directoriesQuery } from "@/api/directories";
import { identityProvidersQuery } from "@/api/identity";
import { Field } from "@/ui/field";
import { DIRECTORY_CLAIMS, type Draft } from "./draft";

interface SourceFieldsProps {
  draft: Draft;
  onChange: (values: Partial<Draft>) => void;
  problem: (field: string) => string | undefined;
}

/** Where a rule reads groups: an identity provider and a claim, or a directory and a field of its groups. */
export function SourceFields({ draft, onChange, problem }: SourceFieldsProps) {
  const { t } = useTranslation();
  const providers = useQuery(identityProvidersQuery).data ?? [];
  const directories = useQuery(directoriesQuery).data ?? [];
  const { provider, claim } = draft;
  const isDirectory = (id: string) => directories.some((each) => each.id === id);
  const isClaim = (name: string) => DIRECTORY_CLAIMS.some((each) => each === name);
  const chooseProvider = (id: string) =>
    onChange({ provider: id, ...(isDirectory(id) !== isDirectory(provider) && { claim: "groups" }) });
  return (
    <>
      <Field label={t("roleRules.provider")} error={problem("provider")}>
        {(wiring) => (
          <select
            {...wiring}
            className="control"
            required={draft.target === "administrator"}
            value={provider}
            onChange={({ target }) => chooseProvider(target.value)}
          >
            <option value="">{t("roleRules.anyProvider")}</option>
            {provider && !isDirectory(provider) && !providers.some(({ id }) => id === provider) && (
              <option value={provider}>{provider}</option>
            )}
            <Options label={t("roleRules.providers")} rows={providers} />
            <Options label={t("roleRules.directories")} rows={directories} />
          </select>
        )}
      </Field>
      {isDirectory(provider) ? (
        <Field label={t("roleRules.groupField")} error={problem("claim")}>
          {(wiring) => (
            <select
              {...wiring}
              className="control"
              value={claim}
              onChange={({ target }) => onChange({ claim: target.value })}
            >
              {!isClaim(claim) && <option value={claim}>{claim}</option>}
              {DIRECTORY_CLAIMS.map((each) => (
                <option key={each} value={each}>
                  {t(`roleRules.groupFields.${each}`)}
                </option>
              ))}
            </select>
          )}
        </Field>
      ) : (
        <Field label={t("roleRules.claim")} hint={t("roleRules.claimHint")} error={problem("claim")}>
          {(wiring) => (
            <input
              {...wiring}
              className="control"
              required
              maxLength={200}
              autoComplete="off"
              value={claim}
              onChange={({ target }) => onChange({ claim: target.value })}
            />
          )}
        </Field>
      )}
    </>
  );
}

function Options({ label, rows }: { label: string; rows: { id: string; name: string }[] }) {
  if (rows.length === 0) return null;
  return (
    <optgroup label={label}>
      {rows.map(({ id, name }) => (
        <option key={id} value={id}>
          {name}
        </option>
      ))}
    </optgroup>
  );
}
