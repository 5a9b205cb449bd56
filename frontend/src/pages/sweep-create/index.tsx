import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { useLocation, useSearchParams } from "react-router";
import { cloneQuery, taskQuery } from "@/api/tasks";
import type { CreateRequest } from "@/api/types";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { EMPTY_SWEEP, pickTrialRequest, type SweepDraft } from "./draft";
import { SweepForm } from "./form";

/** The page to create a sweep. `?from=<task>` starts with a task; the create page passes its request along. */
export function Component() {
  const { t } = useTranslation();
  const [params] = useSearchParams();
  const from = params.get("from");
  return (
    <Page title={t("sweepForm.title")}>
      <p className="mb-4 max-w-3xl text-sm text-muted">{t("sweepForm.lead")}</p>
      {from ? <FormOfTask key={from} id={from} /> : <FormOfRequest />}
    </Page>
  );
}

function FormOfTask({ id }: { id: string }) {
  const request = useQuery(cloneQuery(id));
  const task = useQuery(taskQuery(id));
  const failed = [request, task].find((query) => query.isError);
  if (failed) return <LoadError error={failed.error} retry={() => void failed.refetch()} />;
  if (!request.data || !task.data) return <Loading />;
  return <SweepForm start={startWith(request.data, task.data.taskName)} task={id} />;
}

/** Starts with a request that another page passed along, or with none. */
function FormOfRequest() {
  const state: unknown = useLocation().state;
  const request = typeof state === "object" && state && "request" in state ? (state.request as CreateRequest) : null;
  return <SweepForm start={request ? startWith(request, request.taskName ?? "") : EMPTY_SWEEP} task={null} />;
}

/** What a sweep's name may have. */
const MAX_NAME_LENGTH = 80;

function startWith(request: CreateRequest, name: string): SweepDraft {
  return { ...EMPTY_SWEEP, name: name.slice(0, MAX_NAME_LENGTH), request: pickTrialRequest(request) };
}
