import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { codeSourceQuery } from "@/api/code";
import { datasetsQuery, modelsQuery } from "@/api/inventory";
import { meQuery } from "@/api/session";
import { checkpointsQuery, cloneQuery } from "@/api/tasks";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { buildRefetchDraft } from "./code-draft";
import { type Draft, buildDraft, EMPTY_DRAFT, toggleEnvironment, setDraftField } from "./draft";
import { CreateForm } from "./form";
import { type DraftStorage, openDraftStorage } from "./draft-storage";
import { fillDefaultChoices } from "./default-choices";

/**
 * The page to create a task. `?from=<task>` clones a request, `&resumeFrom=<path>` starts at one of its checkpoints,
 * `?retry=<task>` at the newest; `?environments=<id>,<id>` selects environments; `&field=<name>` focuses a field, and
 * `&to=<value>` sets it.
 */
export function Component() {
  const { t } = useTranslation();
  const [params] = useSearchParams();
  const owner = useQuery(meQuery).data?.username ?? "";
  const origin = params.toString();
  const store = useMemo(() => openDraftStorage(owner, origin), [owner, origin]);
  return (
    <Page title={t("create.title")}>
      <Form key={`${owner}?${origin}`} params={params} store={store} />
    </Page>
  );
}

interface StartProps {
  params: URLSearchParams;
  store: DraftStorage;
}

/** Starts from a restored draft, or else from what the address names. */
function Form({ params, store }: StartProps) {
  const [saved] = useState(store.load);
  const [startedOver, setStartedOver] = useState(false);
  const source = params.get("retry") ?? params.get("from");
  const startOver = () => {
    store.drop();
    setStartedOver(true);
  };
  if (saved && !startedOver) return <CreateForm start={saved} store={store} restored onStartOver={startOver} />;
  const field = params.get("field") ?? "";
  const to = params.get("to") ?? "";
  const form = (start: Draft) => (
    <CreateForm start={start} store={store} restored={false} goesTo={field} onStartOver={startOver} />
  );
  return source ? (
    <CloneForm
      id={source}
      resumes={params.has("retry")}
      checkpoint={params.get("resumeFrom")}
      form={(start) => form(field && to ? setDraftField(start, field, to) : start)}
    />
  ) : (
    <NewTaskForm environments={params.get("environments")} form={form} />
  );
}

type RenderForm = (start: Draft) => ReactNode;

interface CopiedProps {
  id: string;
  /** Whether to resume from the newest checkpoint. */
  resumes: boolean;
  checkpoint: string | null;
  form: RenderForm;
}

function CloneForm({ id, resumes, checkpoint, form }: CopiedProps) {
  const request = useQuery(cloneQuery(id));
  const checkpoints = useQuery({ ...checkpointsQuery(id), enabled: resumes });
  const source = useQuery(codeSourceQuery(id));
  const failed = [request, checkpoints].find((query) => query.isError);
  if (failed) return <LoadError error={failed.error} retry={() => void failed.refetch()} />;
  if (!request.data || (resumes && !checkpoints.data) || source.isPending) return <Loading />;
  const newest = checkpoints.data?.toSorted((a, b) => b.step - a.step)[0]?.path;
  const copy = buildDraft(request.data);
  const draft = source.data?.changed ? { ...copy, code: buildRefetchDraft(copy.code) } : copy;
  const resumeFrom = checkpoint ?? newest;
  return form(resumeFrom ? { ...draft, plain: { ...draft.plain, resumeFrom } } : draft);
}

/** Starts with the first usable dataset and the first model. */
function NewTaskForm({ environments, form }: { environments: string | null; form: RenderForm }) {
  const datasets = useQuery(datasetsQuery);
  const models = useQuery(modelsQuery);
  const failed = [datasets, models].find((query) => query.isError);
  if (failed) return <LoadError error={failed.error} retry={() => void failed.refetch()} />;
  if (!datasets.data || !models.data) return <Loading />;
  const start: Draft = { ...EMPTY_DRAFT, ...fillDefaultChoices(datasets.data, models.data) };
  return form((environments?.split(",").filter(Boolean) ?? []).reduce(toggleEnvironment, start));
}
