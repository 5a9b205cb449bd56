import type { TFunction } from "i18next";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Proposal } from "@/api/agents";
import { formatDateTime, formatDuration, formatGpuTime, formatMoney } from "@/lib/format";
import { Badge, Callout, type Tone } from "@/ui/badge";
import { Card } from "@/ui/card";
import { CodeBlock } from "@/ui/code-block";
import { Collapsible } from "@/ui/collapsible";
import { DefinitionList } from "@/ui/table";
import { TextLink } from "@/ui/text-link";
import { Decision } from "./decision";
import { describeProposal, readOutcome } from "./proposal";

const TONES: Record<Proposal["state"], Tone> = { open: "info", approved: "ok", declined: "idle", expired: "idle" };

/** A proposal as one thing: what it wants, its plan and cost, what is beyond the purse, the difference, the decision. */
export function ProposalCard({ proposal }: { proposal: Proposal }) {
  const { t } = useTranslation();
  const { agent, tokenName, tokenId, user, createdAt, expiresAt, state, plan, beyond, difference, body } = proposal;
  return (
    <Card
      title={<span className="break-words">{describeProposal(t, proposal)}</span>}
      aside={<Badge tone={TONES[state]}>{t(`agents.stateOf.${state}`)}</Badge>}
    >
      <div className="space-y-4">
        <p className="text-sm text-muted">
          {t("agents.requestedBy")} <TextLink to={`/agents/${tokenId}`}>{agent || tokenName}</TextLink> ·{" "}
          {t("agents.inNameOf", { name: user })} · {formatDateTime(createdAt)}
          {state === "open" && <> · {t("agents.endsAt", { time: formatDateTime(expiresAt) })}</>}
        </p>
        <Callout tone="warn">
          <p className="font-medium">{t("agents.beyond")}</p>
          <ul className="list-disc pl-5">
            {beyond.map(({ code, message }) => (
              <li key={code}>{message}</li>
            ))}
          </ul>
        </Callout>
        {plan && <Plan plan={plan} />}
        {difference && difference.changes.length > 0 && <Difference difference={difference} />}
        {Object.keys(body).length > 0 && (
          <Collapsible wanted={false} title={<span className="text-sm font-medium">{t("agents.request")}</span>}>
            <p className="my-2 text-sm text-muted">{t("agents.requestHint")}</p>
            <CodeBlock name="request.json" content={JSON.stringify(body, null, 2)} />
          </Collapsible>
        )}
        <Outcome proposal={proposal} />
        <Decision proposal={proposal} />
      </div>
    </Card>
  );
}

function describePlan(t: TFunction, plan: NonNullable<Proposal["plan"]>): [string, ReactNode][] {
  return [
    [
      t("agents.plan.scale"),
      `${t("counted.nodes", { count: plan.nodes })} · ${t("counted.gpus", { count: plan.gpus })}`,
    ],
    [t("agents.plan.environments"), plan.environments.join(", ")],
    [
      t("agents.plan.maxRun"),
      plan.maxRunSeconds === null ? t("agents.plan.endless") : formatDuration(t, plan.maxRunSeconds),
    ],
    [
      t("agents.plan.gpuHours"),
      plan.gpuHours === null
        ? t("agents.plan.unknown")
        : t("agents.plan.atMost", { amount: formatGpuTime(t, plan.gpuHours) }),
    ],
    [
      t("agents.plan.cost"),
      plan.cost === null
        ? t("agents.plan.unknown")
        : t("agents.plan.atMost", { amount: formatMoney(plan.cost, plan.currency) }),
    ],
  ];
}

function Plan({ plan }: { plan: NonNullable<Proposal["plan"]> }) {
  const { t } = useTranslation();
  return (
    <section>
      <h3 className="mb-1.5 text-sm font-semibold">{t("agents.plan.title")}</h3>
      <DefinitionList facts={describePlan(t, plan)} className="max-w-xl" />
    </section>
  );
}

function Difference({ difference }: { difference: NonNullable<Proposal["difference"]> }) {
  const { t } = useTranslation();
  return (
    <section>
      <h3 className="mb-1.5 text-sm font-semibold">
        {t("agents.difference")}{" "}
        <Link to={`/training/${difference.taskId}`} className="font-normal text-accent-ink underline">
          {difference.taskId}
        </Link>
      </h3>
      <div className="overflow-x-auto rounded-lg border" tabIndex={0} role="group" aria-label={t("agents.difference")}>
        <table className="w-full text-left text-sm">
          <thead className="border-b bg-sunken text-muted">
            <tr className="*:px-3 *:py-1.5 *:font-medium">
              <th>{t("agents.field")}</th>
              <th>{t("agents.before")}</th>
              <th>{t("agents.after")}</th>
            </tr>
          </thead>
          <tbody className="divide-y">
            {difference.changes.map(({ field, before, after }) => (
              <tr key={field} className="align-top *:px-3 *:py-1.5">
                <td className="font-mono text-xs break-all">{field}</td>
                <td className="break-all text-bad-ink">{before ?? "–"}</td>
                <td className="break-all text-ok-ink">{after ?? "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** What became of a decided proposal. */
function Outcome({ proposal }: { proposal: Proposal }) {
  const { t } = useTranslation();
  const { state, decidedBy, decidedAt, note } = proposal;
  if (state !== "approved" && state !== "declined") return null;
  const { taskId, failures } = readOutcome(proposal);
  return (
    <section className="space-y-2 text-sm">
      <p className="text-muted">
        {t(`agents.decided.${state}`, { name: decidedBy ?? "–", time: decidedAt ? formatDateTime(decidedAt) : "–" })}
        {note && <span className="block break-words whitespace-pre-line">{t("agents.noteText", { note })}</span>}
      </p>
      {state === "approved" && proposal.status === null && (
        <Callout tone="warn" role="status">
          {t("agents.cutOff")}
        </Callout>
      )}
      {failures.length > 0 && (
        <Callout tone="bad" role="status">
          <p className="font-medium">{t("agents.failed")}</p>
          {failures.map((text, index) => (
            <p key={index}>{text}</p>
          ))}
        </Callout>
      )}
      {state === "approved" && proposal.status !== null && failures.length === 0 && (
        <Callout tone="ok" role="status">
          {t("agents.doneText")}{" "}
          {taskId && (
            <Link to={`/training/${taskId}`} className="font-medium underline">
              {t("agents.toTask")}
            </Link>
          )}
        </Callout>
      )}
    </section>
  );
}
