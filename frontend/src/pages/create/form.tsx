import { useQuery } from "@tanstack/react-query";
import { Grid2x2Plus, RotateCcw } from "lucide-react";
import { lazy, type SubmitEvent, Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { ApiError } from "@/api/errors";
import { environmentsQuery, frameworksQuery } from "@/api/inventory";
import { previewQuery } from "@/api/tasks";
import type { Environment, Framework, Preview as Previewed, Problem } from "@/api/types";
import { withPageTexts } from "@/i18n";
import { useDebounced } from "@/lib/hooks";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { Loading } from "@/ui/errors";
import { Collapsible } from "@/ui/collapsible";
import { ScalingEstimate } from "@/ui/scaling-estimate";
import { Advanced } from "./advanced";
import { sumEnvironments } from "./aggregate";
import { Basics } from "./basics";
import type { CapacityRequest } from "./capacity";
import { useCreateTask, useIdempotencyKey } from "./use-create-task";
import { Distributed } from "./distributed";
import {
  type Draft,
  EMPTY_DRAFT,
  usesOwnScript,
  createsEnvironments,
  countNodes,
  buildRequest,
  toggleEnvironment,
} from "./draft";
import { Environments } from "./environments";
import { FrameworkFields } from "./framework-fields";
import { Preview } from "./preview";
import { UnknownFieldList } from "./unknown-fields";
import { RunInField } from "./run-in-field";
import { groupByField, getControlName, focusControl, getFormSection } from "./problems";
import type { DraftStorage } from "./draft-storage";
import { Summary } from "./summary";
import { useNewEnvironments } from "./use-new-environments";

const MemoryInUse = lazy(() => withPageTexts(import("./memory-in-use")));
const Packages = lazy(() => withPageTexts(import("./packages")));
const NewEnvironments = lazy(() => withPageTexts(import("./new-environments")));
const Scenarios = lazy(() => import("./scenarios"));
const Templates = lazy(() => import("./templates"));

const PREVIEW_AFTER_MS = 300;
const NO_PROBLEMS: Problem[] = [];
const NO_ENVIRONMENTS: Environment[] = [];
const NO_FRAMEWORKS: Framework[] = [];

interface CreateFormProps {
  start: Draft;
  store: DraftStorage;
  /** Whether `start` is a restored draft. */
  restored: boolean;
  /** The control to focus first. */
  goesTo?: string;
  onStartOver: () => void;
}

export function CreateForm({ start, store, restored, goesTo, onStartOver }: CreateFormProps) {
  const { t } = useTranslation();
  const form = useRef<HTMLFormElement>(null);
  const navigate = useNavigate();
  const [initial] = useState(start);
  const [draft, setDraft] = useState(initial);
  const [taken, setTaken] = useState<Draft>();
  const [tried, setTried] = useState(false);
  const [touched, setTouched] = useState(() => listFilledSections(initial));
  const frameworks = useQuery(frameworksQuery).data ?? NO_FRAMEWORKS;
  const body = useMemo(() => buildRequest(draft, frameworks), [draft, frameworks]);
  const request = useDebounced(body, PREVIEW_AFTER_MS);
  const preview = useQuery({ ...previewQuery(request), enabled: frameworks.length > 0 });
  const shown = useMemo(() => applySelection(draft, preview.data), [draft, preview.data]);
  const inventory = useInventory(shown.selected);
  const made = useNewEnvironments(draft);
  const chosen = createsEnvironments(draft) ? made.environments : inventory.chosen;
  const create = useCreateTask(chosen, store);
  const keyFor = useIdempotencyKey();
  useEffect(() => {
    if (goesTo && form.current) focusControl(form.current, goesTo);
  }, [goesTo]);
  useEffect(() => {
    if (draft !== initial) store.save(draft);
  }, [store, draft, initial]);

  const refused = create.variables?.body === body ? getProblems(create.error) : NO_PROBLEMS;
  const found = refused.length > 0 ? refused : (preview.data?.problems ?? getProblems(preview.error));
  /** Problems of the form before a template was taken are not shown. */
  const outdated = draft === taken && (request !== body || preview.isPlaceholderData);
  const problems = useMemo(
    () =>
      groupByField(
        found.filter(({ field }) => !outdated && (tried || touched.has(getFormSection(field)))),
        shown.selected,
      ),
    [found, outdated, tried, touched, shown.selected],
  );

  const touch = useCallback((...parts: (keyof Draft)[]) => {
    setTouched((now) => (parts.every((part) => now.has(part)) ? now : new Set([...now, ...parts])));
  }, []);
  const onChange = useCallback(
    (patch: Partial<Draft>) => {
      setDraft((now) => ({ ...now, ...patch }));
      touch(...(Object.keys(patch) as (keyof Draft)[]));
    },
    [touch],
  );
  const onToggle = useCallback(
    (id: string) => {
      setDraft((now) =>
        now.capacity ? { ...now, capacity: excludeEnvironment(now.capacity, id) } : toggleEnvironment(now, id),
      );
      touch("selected");
    },
    [touch],
  );
  const onTake = useCallback((template: Draft) => {
    setDraft(template);
    setTaken(template);
    setTouched(listFilledSections(template));
  }, []);
  const onClear = useCallback(() => onChange({ selected: [], master: "" }), [onChange]);
  const onCapacity = useCallback((capacity: Draft["capacity"]) => onChange({ capacity }), [onChange]);
  const onByName = () => onChange({ capacity: null, selected: shown.selected, master: shown.master });
  const goTo = ({ field }: Problem) => {
    if (form.current) focusControl(form.current, getControlName(field, shown.selected));
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setTried(true);
    const onError = (error: Error) => {
      const first = getProblems(error).find(({ field }) => field);
      if (first) goTo(first);
    };
    create.mutate({ body, key: keyFor(body) }, { onError });
  };

  const section = { draft: shown, problems, onChange };
  const several = countNodes(shown) > 1;
  const sum = sumEnvironments(chosen);
  return (
    <form ref={form} onSubmit={submit} noValidate>
      {restored && (
        <p className="mb-4 flex flex-wrap items-center gap-2 text-sm text-muted">
          {t("create.restored")}
          <Button look="ghost" size="sm" onClick={onStartOver}>
            <RotateCcw />
            {t("create.startOver")}
          </Button>
        </p>
      )}
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_24rem] xl:grid-cols-[minmax(0,1fr)_29rem]">
        <div className="min-w-0 space-y-4">
          <Collapsible
            title={t("create.template.title")}
            wanted={false}
            className="rounded-xl border bg-surface px-4 py-3"
            summaryClassName="w-fit text-sm font-medium"
            whenOpen={() => (
              <Suspense fallback={<Loading />}>
                <Templates onTake={onTake} />
              </Suspense>
            )}
          />
          <Basics
            {...section}
            missingArguments={preview.data?.missingArguments}
            resumeProposal={preview.data?.resume}
          />
          {createsEnvironments(draft) ? (
            <Suspense fallback={<Loading />}>
              <NewEnvironments {...section} />
            </Suspense>
          ) : (
            <Environments
              selected={shown.selected}
              master={shown.master}
              capacity={draft.capacity}
              chosen={preview.data?.chosen}
              problems={problems}
              onCapacity={onCapacity}
              onByName={onByName}
              onToggle={onToggle}
              onClear={onClear}
            />
          )}
          {shown.selected.length > 0 && !createsEnvironments(draft) && (
            <Suspense>
              <Scenarios draft={shown} />
            </Suspense>
          )}
          {several && <Distributed {...section} chosen={chosen} preview={preview.data} worldSize={sum.worldSize} />}
          <RunInField {...section} preview={preview.data} />
          <Advanced
            {...section}
            framework={<FrameworkFields {...section} preview={preview.data} worldSize={sum.worldSize} />}
          />
          <UnknownFieldList rest={draft.rest} onChange={onChange} />
        </div>
        {/* Scrolls with the page until its end is visible, then stays. */}
        <aside className="min-w-0 space-y-4 self-end lg:sticky lg:bottom-20 lg:min-h-[calc(100dvh-9rem)]">
          <Summary
            chosen={chosen}
            missing={createsEnvironments(draft) ? [] : inventory.missing}
            made={createsEnvironments(draft) ? made.text : undefined}
            hourly={preview.data?.hourly}
            framework={draft.framework}
            notices={preview.data?.warnings.filter(({ code }) => !SHOWN_IN_CARDS.includes(code)) ?? []}
            batch={preview.data?.batch}
            ready={
              found.length === 0 &&
              request === body &&
              !preview.isPlaceholderData &&
              canStartImmediately(draft, preview.data)
            }
            onRemove={onToggle}
          />
          {several && preview.data?.scaling && (
            <Card title={t("scaling.title")}>
              <ScalingEstimate scaling={preview.data.scaling} />
            </Card>
          )}
          {preview.data?.packages && (
            <Suspense>
              <Packages packages={preview.data.packages} />
            </Suspense>
          )}
          {(preview.data?.inUse.length ?? 0) > 0 && (
            <Suspense>
              <MemoryInUse draft={shown} inUse={preview.data?.inUse ?? []} onChange={onChange} />
            </Suspense>
          )}
          <Preview
            preview={preview}
            waiting={request !== body}
            problems={found}
            environments={inventory.byId}
            onGoTo={goTo}
          />
        </aside>
      </div>
      <div className="sticky bottom-0 z-10 -mx-4 mt-4 -mb-5 flex items-center justify-between gap-3 border-t bg-surface px-4 py-3 sm:-mx-6 sm:px-6">
        <span className="min-w-0 text-sm text-muted">
          {t("create.footer", { count: sum.nodeCount, gpus: t("counted.gpus", { count: sum.totalGpus }) })}
        </span>
        <span className="flex shrink-0 gap-2">
          <Button
            title={t("create.asSweepHint")}
            onClick={() => void navigate("/sweeps/new", { state: { request: body } })}
          >
            <Grid2x2Plus />
            {t("create.asSweep")}
          </Button>
          <Button type="submit" look="primary" disabled={create.isPending}>
            {t(create.isPending ? "create.submitting" : "create.submit")}
          </Button>
        </span>
      </div>
    </form>
  );
}

/** Returns the draft with the environments selected that the platform would choose now. */
function applySelection(draft: Draft, preview: Previewed | undefined): Draft {
  if (!draft.capacity) return draft;
  if (createsEnvironments(draft)) return draft;
  return { ...draft, selected: preview?.chosen?.nodeIds ?? [], master: preview?.chosen?.masterNode ?? "" };
}

/** Warnings that have a card of their own. */
const SHOWN_IN_CARDS = [
  "IMPORT_MISSING",
  "IMPORTS_MISSING_MORE",
  "PACKAGES_DIFFER",
  "PACKAGES_DIFFER_FATALLY",
  "GPU_MEMORY_LEFT",
];

const QUEUES = ["ENVIRONMENTS_BUSY", "ENVIRONMENTS_IN_USE"];

/** Returns whether nothing delays the start: no environment in use, no code to fetch, no pre-flight, no drill. */
function canStartImmediately(draft: Draft, preview: Previewed | undefined): boolean {
  if (!preview) return false;
  const waits =
    preview.chosen?.startsNow === false ||
    preview.inUse.length > 0 ||
    preview.warnings.some(({ code }) => QUEUES.includes(code));
  const { preflight, drill } = draft.plain;
  const isOff = (value: string | undefined) => !value || value === "off";
  const fetches = usesOwnScript(draft) && !["", "snapshot"].includes(draft.code.source);
  return !waits && !fetches && isOff(preflight) && isOff(drill);
}

/** Deselecting a proposed environment excludes it. */
function excludeEnvironment(capacity: CapacityRequest, id: string): CapacityRequest {
  const { exclude } = capacity;
  return { ...capacity, exclude: exclude.includes(id) ? exclude.filter((each) => each !== id) : [...exclude, id] };
}

/**
 * Returns the sections that started filled in. Their problems are shown immediately; those of an empty form are not.
 */
function listFilledSections(draft: Draft): ReadonlySet<keyof Draft> {
  const parts = Object.keys(EMPTY_DRAFT) as (keyof Draft)[];
  return new Set(parts.filter((part) => JSON.stringify(draft[part]) !== JSON.stringify(EMPTY_DRAFT[part])));
}

/** Returns the problems of a refused preview. */
function getProblems(error: Error | null): Problem[] {
  return error instanceof ApiError ? error.problems : NO_PROBLEMS;
}

function useInventory(selected: string[]) {
  const all = useQuery(environmentsQuery).data;
  const byId = useMemo(() => new Map((all ?? NO_ENVIRONMENTS).map((each) => [each.id, each])), [all]);
  const chosen = useMemo(() => selected.flatMap((id) => byId.get(id) ?? []), [selected, byId]);
  const missing = all ? selected.filter((id) => !byId.has(id)) : [];
  return { byId, chosen, missing };
}
