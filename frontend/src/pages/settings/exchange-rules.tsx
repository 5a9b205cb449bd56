import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import {
  accountKeys,
  changeExchangeRule,
  createExchangeRule,
  deleteExchangeRule,
  exchangeIssuersQuery,
  exchangeRulesQuery,
} from "@/api/account";
import type { ExchangeRule, ServiceAccount } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { CodeBlock } from "@/ui/code-block";
import { LoadError, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog, LinesField, TextField } from "@/ui/form-dialog";
import {
  buildConditions,
  buildSnippet,
  chooseIssuer,
  parseConditions,
  type Place,
  PLACES,
  type Recipe,
  RECIPES,
} from "./exchange-recipes";
import { RemovableRow } from "./removable-row";
import { ScopePicker } from "./scope-picker";
import { PRESETS } from "./token-scopes";

const MINUTES = [5, 10, 15, 30, 60] as const;

/** The rules by which pipelines get tokens of the project's service accounts, by their ID tokens. */
export function ExchangeRules({ project, accounts }: { project: string; accounts: ServiceAccount[] }) {
  const { t } = useTranslation();
  const rules = useQuery(exchangeRulesQuery(project));
  return (
    <section className="mt-3 text-sm">
      <div className="flex items-center justify-between gap-3">
        <h4 className="font-semibold">{t("exchange.rules")}</h4>
        {accounts.length > 0 && <CreateRule project={project} accounts={accounts} />}
      </div>
      <p className="mt-1 text-xs text-muted">
        {accounts.length > 0 ? t("exchange.rulesHint") : t("exchange.accountFirst")}
      </p>
      {rules.isError && <LoadError error={rules.error} retry={() => void rules.refetch()} />}
      <ul className="mt-1 divide-y" aria-label={t("exchange.rules")}>
        {rules.data?.map((rule) => (
          <RuleRow key={rule.id} project={project} rule={rule} />
        ))}
      </ul>
    </section>
  );
}

function RuleRow({ project, rule }: { project: string; rule: ExchangeRule }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const after = {
    onError: (error: Error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: accountKeys.exchangeRules(project) }),
  };
  const change = useMutation({
    mutationFn: (enabled: boolean) => changeExchangeRule(project, rule.id, { enabled }),
    ...after,
  });
  const remove = useMutation({ mutationFn: () => deleteExchangeRule(project, rule.id), ...after });
  return (
    <RemovableRow
      name={
        <>
          <span className="font-medium">{rule.name}</span>
          <span className="block text-xs text-muted">
            {t("exchange.facts", { username: rule.username, minutes: rule.minutes })} ·{" "}
            {rule.lastUsedAt
              ? t("exchange.lastUsed", { time: formatDateTime(rule.lastUsedAt) })
              : t("apiTokens.neverUsed")}
          </span>
        </>
      }
      label={t("exchange.remove", { name: rule.name })}
      title={t("exchange.removeTitle", { name: rule.name })}
      hint={t("exchange.removeHint")}
      remove={remove}
      below={
        <dl className="grid grid-cols-[auto_1fr] gap-x-3 text-xs text-muted">
          {Object.entries({ iss: rule.issuer, aud: rule.audience, ...rule.conditions }).map(([claim, value]) => (
            <div key={claim} className="contents">
              <dt className="font-mono">{claim}</dt>
              <dd className="min-w-0 font-mono break-all">{value}</dd>
            </div>
          ))}
          <dt>{t("apiTokens.scopes")}</dt>
          <dd className="min-w-0 font-mono break-words">{rule.scopes.join(" ")}</dd>
        </dl>
      }
    >
      <label className="flex items-center gap-2">
        <input
          type="checkbox"
          checked={rule.enabled}
          disabled={change.isPending}
          aria-label={t("exchange.enabledOf", { name: rule.name })}
          onChange={({ target }) => change.mutate(target.checked)}
        />
        {t("exchange.enabled")}
      </label>
    </RemovableRow>
  );
}

function CreateRule({ project, accounts }: { project: string; accounts: ServiceAccount[] }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const issuers = useQuery(exchangeIssuersQuery);
  const [recipe, setRecipe] = useState<Recipe>("github");
  const [place, setPlace] = useState<Place>("branch");
  const [scopes, setScopes] = useState<string[]>([...PRESETS.pipeline]);
  const known = issuers.data?.issuers ?? [];
  const create = async (texts: Record<string, string>) => {
    const conditions =
      recipe === "other"
        ? parseConditions(texts["conditions"] ?? "")
        : buildConditions(recipe, texts["path"] ?? "", place, texts["place"] ?? "");
    const made = await createExchangeRule(project, {
      name: texts["name"] ?? "",
      serviceAccount: texts["account"] ?? "",
      issuer: texts["issuer"] ?? "",
      audience: texts["audience"] ?? "",
      conditions,
      scopes,
      minutes: Number(texts["minutes"]),
    });
    await client.invalidateQueries({ queryKey: accountKeys.exchangeRules(project) });
    return made;
  };
  const onOpenChange = (open: boolean) => {
    if (!open) return;
    setRecipe("github");
    setPlace("branch");
    setScopes([...PRESETS.pipeline]);
  };
  return (
    <FormDialog
      title={t("exchange.create")}
      description={t("exchange.createHint")}
      submit={t("settings.create")}
      wide
      fields={["name", "serviceAccount", "issuer", "audience", "conditions", "scopes", "minutes"]}
      onSubmit={create}
      onOpenChange={onOpenChange}
      result={(made) => <MadeRule recipe={recipe} rule={made} />}
      trigger={
        <Button size="sm">
          <Plus />
          {t("exchange.create")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <div className="grid items-start gap-4 sm:grid-cols-2">
            <Field label={t("exchange.recipe")}>
              {(wiring) => (
                <select
                  {...wiring}
                  className="control"
                  value={recipe}
                  onChange={({ target }) => setRecipe(target.value as Recipe)}
                >
                  {RECIPES.map((each) => (
                    <option key={each} value={each}>
                      {t(`exchange.recipes.${each}`)}
                    </option>
                  ))}
                </select>
              )}
            </Field>
            <Field label={t("exchange.account")} error={problem("serviceAccount")}>
              {(wiring) => (
                <select {...wiring} name="account" className="control">
                  {accounts.map((account) => (
                    <option key={account.name} value={account.name}>
                      {account.name}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          </div>
          <TextField
            name="name"
            label={t("exchange.name")}
            placeholder="nightly"
            error={problem("name")}
            maxLength={60}
            required
          />
          <Where key={recipe} recipe={recipe} place={place} setPlace={setPlace} error={problem("conditions")} />
          <Field
            label={t("exchange.issuer")}
            hint={issuers.isSuccess && known.length === 0 ? t("exchange.noIssuers") : t("exchange.issuerHint")}
            error={problem("issuer")}
          >
            {(wiring) => (
              <select
                {...wiring}
                key={`${recipe} ${known.length}`}
                name="issuer"
                className="control"
                defaultValue={chooseIssuer(recipe, known)}
              >
                {known.map((issuer) => (
                  <option key={issuer} value={issuer}>
                    {issuer}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <div className="grid items-start gap-4 sm:grid-cols-2">
            <TextField
              name="audience"
              label={t("exchange.audience")}
              hint={t("exchange.audienceHint")}
              defaultValue={window.location.origin}
              error={problem("audience")}
              maxLength={200}
              required
            />
            <Field label={t("exchange.minutes")} error={problem("minutes")}>
              {(wiring) => (
                <select {...wiring} name="minutes" className="control" defaultValue="15">
                  {MINUTES.map((minutes) => (
                    <option key={minutes} value={minutes}>
                      {t("exchange.minutesOf", { count: minutes })}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          </div>
          <ScopePicker limited scopes={scopes} onChange={(next) => setScopes(next ?? [])} error={problem("scopes")} />
        </>
      )}
    </FormDialog>
  );
}

interface WhereProps {
  recipe: Recipe;
  place: Place;
  setPlace: (place: Place) => void;
  error: string | undefined;
}

/** Which repository, and which branch, tag or environment; or the claims as they are. */
function Where({ recipe, place, setPlace, error }: WhereProps) {
  const { t } = useTranslation();
  if (recipe === "other") {
    return (
      <LinesField
        name="conditions"
        label={t("exchange.conditions")}
        hint={t("exchange.conditionsHint")}
        defaultValue=""
        error={error}
      />
    );
  }
  return (
    <>
      <TextField
        name="path"
        label={t(`exchange.path.${recipe}`)}
        placeholder="acme/model"
        error={error}
        maxLength={300}
        required
      />
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <Field label={t("exchange.place")} hint={place === "any" ? t("exchange.anyHint") : undefined}>
          {(wiring) => (
            <select
              {...wiring}
              className="control"
              value={place}
              onChange={({ target }) => setPlace(target.value as Place)}
            >
              {PLACES.map((each) => (
                <option key={each} value={each}>
                  {t(`exchange.places.${each}`)}
                </option>
              ))}
            </select>
          )}
        </Field>
        {place !== "any" && (
          <TextField
            key={place}
            name="place"
            label={t(`exchange.places.${place}`)}
            defaultValue={place === "branch" ? "main" : undefined}
            placeholder={place === "tag" ? "v*" : place === "environment" ? "production" : undefined}
            hint={place === "environment" ? undefined : t("exchange.starHint")}
            error={undefined}
            maxLength={200}
            required
          />
        )}
      </div>
    </>
  );
}

function MadeRule({ recipe, rule }: { recipe: Recipe; rule: ExchangeRule }) {
  const { t } = useTranslation();
  const name = { github: ".github/workflows/train.yml", gitlab: ".gitlab-ci.yml", other: "exchange.sh" }[recipe];
  return (
    <>
      <Callout tone="ok" role="status">
        {t("exchange.made", { file: name })}
      </Callout>
      <CodeBlock name={name} content={buildSnippet(recipe, rule.username, rule.audience)} />
    </>
  );
}
