import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate, useSearchParams } from "react-router";
import { ApiError } from "@/api/errors";
import { environmentsQuery } from "@/api/inventory";
import { createPreflight, preflightKeys } from "@/api/preflights";
import type { Environment, PreflightRequest } from "@/api/types";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { EnvironmentBadges } from "@/ui/environment-badges";
import { describeError, LoadError, Loading } from "@/ui/errors";
import { Field } from "@/ui/field";
import { SearchBox } from "@/ui/filters";
import { formatProblems } from "@/ui/form-dialog";
import { GpuSummary } from "@/ui/gpu-summary";
import { Page } from "@/ui/page";

const LEVELS = ["quick", "full"] as const;
const SHOWN = 100;
const NONE: Environment[] = [];

/** The page to start a pre-flight. `?environments=<id>,<id>` selects environments. */
export function Component() {
  const { t } = useTranslation();
  const [params] = useSearchParams();
  const client = useQueryClient();
  const navigate = useNavigate();
  const inventory = useQuery(environmentsQuery);
  const [selected, setSelected] = useState(() => params.get("environments")?.split(",").filter(Boolean) ?? []);
  const [master, setMaster] = useState("");
  const [level, setLevel] = useState<(typeof LEVELS)[number]>("quick");
  const all = inventory.data ?? NONE;
  const start = useMutation({
    mutationFn: (body: PreflightRequest) => createPreflight(body),
    onSuccess: async ({ id }) => {
      void client.invalidateQueries({ queryKey: preflightKeys.all });
      await navigate(`/preflight/${id}`);
    },
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const masterNode = selected.includes(master) ? master : selected[0];
    start.mutate({ environmentIds: selected, level, ...(masterNode && { masterNode }) });
  };
  const problems = start.error instanceof ApiError ? start.error.problems : [];
  const nameOf = (id: string) => all.find((each) => each.id === id)?.name ?? id;
  return (
    <Page title={t("preflight.create")}>
      <p className="mb-4 text-sm text-muted">{t("preflight.lead")}</p>
      <form onSubmit={submit} className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        <Card
          title={t("preflight.choose")}
          aside={
            <span className="flex items-center gap-2 text-sm text-muted">
              <span role="status">{t("preflight.selected", { count: selected.length })}</span>
              {selected.length > 0 && (
                <Button look="ghost" size="sm" onClick={() => setSelected([])}>
                  {t("preflight.clear")}
                </Button>
              )}
            </span>
          }
        >
          {inventory.isError && <LoadError error={inventory.error} retry={() => void inventory.refetch()} />}
          {inventory.isPending && <Loading />}
          {inventory.data && (
            <Choice
              environments={all}
              selected={selected}
              onToggle={(id) =>
                setSelected((now) => (now.includes(id) ? now.filter((each) => each !== id) : [...now, id]))
              }
            />
          )}
        </Card>
        <Card className="lg:sticky lg:top-18">
          <div className="space-y-4">
            {start.error && (
              <Callout tone="bad" role="alert">
                {problems.length > 0
                  ? problems.map((problem, index) => <p key={index}>{formatProblems(problem)}</p>)
                  : describeError(t, start.error)}
              </Callout>
            )}
            <fieldset className="space-y-2">
              <legend className="text-sm font-medium">{t("preflight.level")}</legend>
              {LEVELS.map((each) => (
                <label key={each} className="flex items-start gap-2 text-sm">
                  <input
                    type="radio"
                    name="level"
                    className="mt-0.5 size-4 shrink-0 accent-accent"
                    checked={level === each}
                    onChange={() => setLevel(each)}
                  />
                  <span>
                    {t(`preflight.levelOf.${each}`)}
                    <span className="block text-muted">{t(`preflight.levelHint.${each}`)}</span>
                  </span>
                </label>
              ))}
            </fieldset>
            {selected.length > 1 && (
              <Field label={t("preflight.master")} hint={t("preflight.masterHint")}>
                {(wiring) => (
                  <select
                    {...wiring}
                    className="control"
                    value={selected.includes(master) ? master : selected[0]}
                    onChange={({ target }) => setMaster(target.value)}
                  >
                    {selected.map((id) => (
                      <option key={id} value={id}>
                        {nameOf(id)}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
            )}
            <Button
              type="submit"
              look="primary"
              className="w-full justify-center"
              disabled={selected.length === 0 || start.isPending}
            >
              {t(start.isPending ? "preflight.starting" : "preflight.start")}
            </Button>
          </div>
        </Card>
      </form>
    </Page>
  );
}

interface ChoiceProps {
  environments: Environment[];
  selected: string[];
  onToggle: (id: string) => void;
}

function Choice({ environments, selected, onToggle }: ChoiceProps) {
  const { t } = useTranslation();
  const [search, setSearch] = useState("");
  const wanted = search.toLowerCase();
  const found = environments.filter(({ id, name, zone, host }) =>
    [id, name, zone.name, host].some((text) => text.toLowerCase().includes(wanted)),
  );
  return (
    <div className="space-y-3">
      <SearchBox label={t("preflight.search")} value={search} onSettled={setSearch} />
      {found.length === 0 && <p className="text-sm text-muted">{t("preflight.noneMatches")}</p>}
      <ul className="grid gap-2 sm:grid-cols-2 2xl:grid-cols-3">
        {found.slice(0, SHOWN).map((environment) => (
          <li key={environment.id}>
            <label className="flex h-full items-start gap-3 rounded-lg border px-3 py-2 text-sm hover:border-line-strong has-checked:border-accent-line has-checked:bg-accent-soft">
              <input
                type="checkbox"
                className="mt-0.5 size-4 shrink-0"
                checked={selected.includes(environment.id)}
                disabled={environment.status !== "running" && !selected.includes(environment.id)}
                onChange={() => onToggle(environment.id)}
              />
              <span className="min-w-0 space-y-1">
                <span className="block font-medium break-words">{environment.name}</span>
                <span className="flex flex-wrap items-center gap-x-2 gap-y-1 text-xs text-muted">
                  <EnvironmentBadges environment={environment} />
                  {environment.zone.name}
                  <GpuSummary type={environment.gpuType} count={environment.gpuCount} emulated={environment.emulated} />
                </span>
              </span>
            </label>
          </li>
        ))}
      </ul>
      {found.length > SHOWN && <p className="text-sm text-muted">{t("preflight.cut", { count: SHOWN })}</p>}
    </div>
  );
}
