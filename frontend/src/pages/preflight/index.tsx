import { useQuery } from "@tanstack/react-query";
import { Download, RotateCcw } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "react-router";
import { ApiError } from "@/api/errors";
import { isRunning, preflightQuery } from "@/api/preflights";
import type { Preflight } from "@/api/types";
import { formatDateTime, formatDuration, formatMeasurement, getSecondsBetween } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { downloadBlob } from "@/lib/download";
import { Callout } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { SEVERITY_TONE, SeverityBadge } from "@/ui/severity-badge";
import { Page } from "@/ui/page";
import { PreflightStatus } from "@/ui/preflight-status";
import { DefinitionList } from "@/ui/table";
import { Findings } from "./findings";
import { LinkMatrix } from "./link-matrix";
import { type Cell, buildCells, getSeverity, findWorstCell } from "./matrix";
import { StopButton } from "./stop-button";

export function Component() {
  const { t } = useTranslation();
  const { id = "" } = useParams();
  const preflight = useQuery(preflightQuery(id));
  if (preflight.data) return <PreflightPage key={id} preflight={preflight.data} />;
  if (preflight.error instanceof ApiError && preflight.error.status === 404) {
    return (
      <Page title={t("preflight.notFound")}>
        <EmptyState title={t("preflight.notFound")} hint={t("preflight.notFoundHint")}>
          <ButtonLink look="primary" to="/preflight">
            {t("preflight.backToList")}
          </ButtonLink>
        </EmptyState>
      </Page>
    );
  }
  return preflight.isError ? <LoadError error={preflight.error} retry={() => void preflight.refetch()} /> : <Loading />;
}

function PreflightPage({ preflight }: { preflight: Preflight }) {
  const { t } = useTranslation();
  const { id, status, reason } = preflight;
  const again = preflight.nodes.map(({ environmentId }) => environmentId).join(",");
  const download = () =>
    downloadBlob(new Blob([JSON.stringify(preflight, null, 2)], { type: "application/json" }), `${id}.json`);
  return (
    <Page
      title={`${t("preflight.title")} ${id}`}
      heading={
        <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
          {t("preflight.title")}
          <span role="status" className="flex font-normal">
            <PreflightStatus status={status} />
          </span>
          <span className="font-mono text-xs font-normal text-muted">{id}</span>
        </span>
      }
      actions={
        <>
          {preflight.allowedActions.includes("stop") && <StopButton id={id} />}
          <ButtonLink to={`/preflight/create?environments=${again}`}>
            <RotateCcw />
            {t("preflight.again")}
          </ButtonLink>
          <Button onClick={download}>
            <Download />
            {t("preflight.download")}
          </Button>
        </>
      }
    >
      <div className="space-y-4">
        {reason && (
          <Callout tone={status === "failed" ? "bad" : "warn"}>
            <p className="font-medium">{reason.message}</p>
            {reason.hint && (
              <p>
                {t("task.hint")}
                {reason.hint}
              </p>
            )}
          </Callout>
        )}
        <Verdict preflight={preflight} />
        <Matrix preflight={preflight} />
        <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
          <Nodes preflight={preflight} />
          <div className="min-w-0 space-y-4">
            {preflight.together && <CollectiveResults together={preflight.together} />}
            <Run preflight={preflight} />
          </div>
        </div>
      </div>
    </Page>
  );
}

/** The verdict: who is at fault, and what to do. */
function Verdict({ preflight }: { preflight: Preflight }) {
  const { t } = useTranslation();
  const { verdict, nodes } = preflight;
  if (!verdict) {
    if (isRunning(preflight)) return <Callout tone="info">{t("preflight.pending")}</Callout>;
    return preflight.reason ? null : <Callout tone="idle">{t("preflight.noVerdict")}</Callout>;
  }
  const nameOf = (id: string) => nodes.find(({ environmentId }) => environmentId === id)?.name ?? id;
  return (
    <Callout tone={SEVERITY_TONE[verdict.level]} role="status">
      <h2 className="flex flex-wrap items-center gap-2 font-semibold">
        <SeverityBadge level={verdict.level} />
        {verdict.message}
      </h2>
      {verdict.culprits.length > 0 && (
        <ul className="mt-2 space-y-2">
          {verdict.culprits.map((culprit, index) => (
            <li key={index}>
              <p className="flex flex-wrap gap-x-2 font-medium">
                {culprit.environmentIds.map((each) => (
                  <Link key={each} to={`/environments/${each}`} className="underline">
                    {nameOf(each)}
                  </Link>
                ))}
              </p>
              <p>{culprit.message}</p>
              {culprit.hint && (
                <p>
                  {t("task.hint")}
                  {culprit.hint}
                </p>
              )}
            </li>
          ))}
        </ul>
      )}
    </Callout>
  );
}

function Matrix({ preflight }: { preflight: Preflight }) {
  const { t } = useTranslation();
  const [pointed, setPointed] = useState<[row: number, column: number]>();
  const cells = buildCells(preflight);
  const chosen = pointed ?? findWorstCell(cells);
  const cell = cells[chosen[0]]?.[chosen[1]];
  return (
    <Card title={t("preflight.matrix")}>
      <p className="mb-3 text-sm text-muted">{t("preflight.matrixHint")}</p>
      <LinkMatrix cells={cells} chosen={chosen} onChoose={setPointed} />
      {cell && <Details cell={cell} />}
    </Card>
  );
}

function Details({ cell: { from, to, pair, level } }: { cell: Cell }) {
  const { t } = useTranslation();
  const isNode = from === to;
  return (
    <section aria-label={t("preflight.details")} className="mt-4 rounded-lg bg-sunken px-4 py-3">
      <h3 className="mb-2 flex flex-wrap items-center gap-2 text-sm font-semibold">
        {isNode ? t("preflight.node", { name: from.name }) : t("preflight.pair", { from: from.name, to: to.name })}
        {level && <SeverityBadge level={level} />}
      </h3>
      {pair && (
        <DefinitionList
          className="mb-2 max-w-sm"
          facts={[
            [
              t("preflight.rtt"),
              pair.rttMs == null ? "–" : t("preflight.milliseconds", { value: formatMeasurement(pair.rttMs) }),
            ],
            [
              t("preflight.bandwidth"),
              pair.bandwidthMbps == null
                ? "–"
                : t("preflight.megabits", { value: formatMeasurement(pair.bandwidthMbps) }),
            ],
            [t("preflight.interface"), pair.interface ?? "–"],
          ]}
        />
      )}
      {level ? (
        <Findings findings={(isNode ? from.findings : pair?.findings) ?? []} />
      ) : (
        <p className="text-sm text-muted">{t("preflight.waiting")}</p>
      )}
    </section>
  );
}

/** Nodes, the worst first. */
function Nodes({ preflight }: { preflight: Preflight }) {
  const { t } = useTranslation();
  const diagonal = buildCells(preflight)
    .flatMap((line, place) => line[place] ?? [])
    .sort((a, b) => getSeverity(b.level) - getSeverity(a.level));
  return (
    <Card title={t("preflight.nodes")}>
      <ul className="divide-y">
        {diagonal.map(({ from, level }) => (
          <li key={from.environmentId} className="py-3 first:pt-0 last:pb-0">
            <p className="mb-1 flex flex-wrap items-center gap-2">
              <Link to={`/environments/${from.environmentId}`} className="font-medium hover:underline">
                {from.name}
              </Link>
              {level && <SeverityBadge level={level} />}
            </p>
            {level ? (
              <Findings findings={from.findings} />
            ) : (
              <p className="text-sm text-muted">{t("preflight.waiting")}</p>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function CollectiveResults({ together }: { together: NonNullable<Preflight["together"]> }) {
  const { t } = useTranslation();
  const took = (ms: number | null | undefined) =>
    ms == null ? "–" : t("preflight.milliseconds", { value: formatMeasurement(ms) });
  return (
    <Card title={t("preflight.together")} aside={<SeverityBadge level={together.level} />}>
      <p className="mb-3 text-sm text-muted">{t("preflight.togetherHint")}</p>
      <DefinitionList
        className="mb-3"
        facts={[
          [t("preflight.allReduce"), took(together.allReduceMs)],
          [t("preflight.barrier"), took(together.barrierMs)],
        ]}
      />
      <Findings findings={together.findings} />
    </Card>
  );
}

function Run({ preflight }: { preflight: Preflight }) {
  const { t } = useTranslation();
  const now = useNow(isRunning(preflight));
  const facts: [string, ReactNode][] = [
    [t("preflight.level"), t(`preflight.levelOf.${preflight.level}`)],
    [t("task.owner"), preflight.owner],
    [t("preflight.created"), formatDateTime(preflight.createdAt)],
    [
      t("preflight.duration"),
      formatDuration(t, getSecondsBetween(preflight.startedAt ?? preflight.createdAt, preflight.endedAt ?? now)),
    ],
  ];
  if (preflight.taskId) {
    facts.push([
      t("preflight.forTask"),
      <Link to={`/training/${preflight.taskId}`} className="font-mono text-xs text-accent-ink hover:underline">
        {preflight.taskId}
      </Link>,
    ]);
  }
  return (
    <Card title={t("preflight.about")}>
      <DefinitionList facts={facts} />
    </Card>
  );
}
