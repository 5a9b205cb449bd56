import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type SubmitEvent, useCallback, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { ApiError } from "@/api/errors";
import { createSweepMutation, sweepKeys, sweepPreviewQuery } from "@/api/sweeps";
import type { CreateRequest, Problem } from "@/api/types";
import { focusNamedControl } from "@/lib/focus-control";
import { useDebounced } from "@/lib/hooks";
import { Button } from "@/ui/button";
import { toastError } from "@/ui/errors";
import { toast } from "@/ui/toast";
import { BaseTask } from "./base-task";
import { buildSweep, getControlName, listRepeated, type SweepDraft } from "./draft";
import { Objective } from "./objective";
import { Parameters } from "./parameters";
import { Preview } from "./preview";
import { Pruning, Search, TrialSettings } from "./search";
import { useMetricRules } from "./use-metric-rules";

const PREVIEW_AFTER_MS = 300;
const NO_PROBLEMS: Problem[] = [];
/** Problems of the request that have a control here; the others are shown with the task. */
const REQUEST_CONTROLS = ["request.priority", "request.preemptible", "request.entrypoint.args"];

interface SweepFormProps {
  start: SweepDraft;
  /** The task that the form starts with; null: none. */
  task: string | null;
}

export function SweepForm({ start, task: first }: SweepFormProps) {
  const { t } = useTranslation();
  const form = useRef<HTMLFormElement>(null);
  const navigate = useNavigate();
  const client = useQueryClient();
  const [draft, setDraft] = useState(start);
  const [task, setTask] = useState(first);
  const [tried, setTried] = useState(false);
  const [touched, setTouched] = useState<ReadonlySet<keyof SweepDraft>>(new Set());
  const { names: metrics, goal: rule } = useMetricRules(task, draft.metric);
  const body = useMemo(() => buildSweep(draft, rule), [draft, rule]);
  const request = useDebounced(body, PREVIEW_AFTER_MS);
  const preview = useQuery(sweepPreviewQuery(request));
  const create = useMutation(createSweepMutation);

  const refused = create.variables === body ? getProblems(create.error) : NO_PROBLEMS;
  const repeated = listRepeated(draft.parameters);
  const found = [
    ...repeated.map(({ name }): Problem => ({
      field: "parameters",
      error: "REPEATED",
      message: t("sweepForm.repeated", { name: name.trim() }),
      hint: "",
    })),
    ...(refused.length > 0 ? refused : (preview.data?.problems ?? getProblems(preview.error))),
  ];
  const shown = found.filter(({ field }) => tried || isTouched(field, touched));
  const problemOf = (control: string) => findText(shown, control, draft);
  const ofRequest = shown.filter(
    ({ field }) => /^request(\.|$)/.test(field) && !REQUEST_CONTROLS.some((name) => field.startsWith(name)),
  );

  const onChange = useCallback((patch: Partial<SweepDraft>) => {
    setDraft((now) => ({ ...now, ...patch }));
    setTouched((now) => new Set([...now, ...(Object.keys(patch) as (keyof SweepDraft)[])]));
  }, []);
  const onTask = (id: string, name: string, chosen: Partial<CreateRequest>) => {
    setTask(id);
    onChange({ request: chosen, ...(!draft.name.trim() && { name: name.slice(0, MAX_NAME_LENGTH) }) });
  };
  const goTo = ({ field }: Problem) => {
    if (form.current) focusNamedControl(form.current, getControlName(field, draft.parameters));
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setTried(true);
    if (repeated.length > 0) return;
    create.mutate(body, {
      onSuccess: ({ id, name }) => {
        toast.success(t("sweepForm.created", { name }));
        void client.invalidateQueries({ queryKey: sweepKeys.all });
        void navigate(`/sweeps/${id}`);
      },
      onError: (error) => {
        const [problem] = getProblems(error);
        if (problem) goTo(problem);
        else toastError(t, error);
      },
    });
  };

  const section = { draft, problemOf, onChange };
  return (
    <form ref={form} onSubmit={submit} noValidate>
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_24rem] xl:grid-cols-[minmax(0,1fr)_29rem]">
        <div className="min-w-0 space-y-4">
          <BaseTask {...section} task={task} problems={ofRequest} onTask={onTask} />
          <Parameters {...section} />
          <Objective {...section} metrics={metrics} rule={rule} />
          <Search {...section} />
          <Pruning {...section} />
          <TrialSettings {...section} />
        </div>
        <aside className="min-w-0 lg:sticky lg:top-18 lg:max-h-[calc(100dvh-10rem)] lg:overflow-y-auto">
          <Preview
            preview={preview}
            waiting={request !== body}
            problems={tried ? found : shown}
            count={found.length}
            onGoTo={goTo}
          />
        </aside>
      </div>
      <div className="sticky bottom-0 z-10 -mx-4 mt-4 -mb-5 flex items-center justify-end gap-3 border-t bg-surface px-4 py-3 sm:-mx-6 sm:px-6">
        <Button type="submit" look="primary" disabled={create.isPending}>
          {t(create.isPending ? "sweepForm.submitting" : "sweepForm.submit")}
        </Button>
      </div>
    </form>
  );
}

const MAX_NAME_LENGTH = 80;

function getProblems(error: Error | null): Problem[] {
  return error instanceof ApiError ? error.problems : NO_PROBLEMS;
}

/** Parts of the form by the first name of a field. */
const PARTS: Record<string, (keyof SweepDraft)[]> = {
  objective: ["metric", "value", "target", "goal"],
  request: ["request", "priority", "preemptible", "passing"],
};

/** Returns whether the user has been in the part of the form that a problem belongs to. */
function isTouched(field: string, touched: ReadonlySet<keyof SweepDraft>): boolean {
  const head = field.split(".")[0] ?? "";
  return (PARTS[head] ?? [head as keyof SweepDraft]).some((part) => touched.has(part));
}

/** Returns the problems of a control, and of all inside it that has no control of its own. */
function findText(problems: Problem[], control: string, draft: SweepDraft): string | undefined {
  const texts = problems
    .filter(({ field }) => {
      const name = getControlName(field, draft.parameters);
      return name === control || (!WITH_PARTS.includes(control) && name.startsWith(`${control}.`) && !hasControl(name));
    })
    .map(({ message, hint }) => (hint ? `${message} ${hint}` : message));
  return texts.length > 0 ? [...new Set(texts)].join("\n") : undefined;
}

/** Controls that show only problems of their own. */
const WITH_PARTS = ["parameters", "budget", "objective", "pruning"];

/** Returns whether a part of a parameter has a control of its own. */
const hasControl = (name: string) => /^parameters\.\d+\.(min|max|step|values|value|when|type|kind)$/.test(name);
