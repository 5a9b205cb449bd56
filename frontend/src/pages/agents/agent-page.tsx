import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate, useParams } from "react-router";
import {
  type AgentEvent,
  agentEventsQuery,
  agentQuery,
  EVENTS_PER_PAGE,
  invalidateAgents,
  undoEvent,
} from "@/api/agents";
import { formatDateTime } from "@/lib/format";
import { type TaskNames, useTaskNames } from "@/lib/use-task-names";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { ROW, Table } from "@/ui/table";
import { TaskLink } from "@/ui/task-link";
import { TextLink } from "@/ui/text-link";
import { toast } from "@/ui/toast";
import { ChangePurse } from "./change-purse";
import { PurseFacts } from "./purse-facts";
import { RevokeAgent } from "./revoke-agent";
import { Sections } from "./sections";

/** One agent: its purse, and what it did. */
export function Component() {
  const { id = "" } = useParams();
  const { t } = useTranslation();
  const navigate = useNavigate();
  const agent = useQuery(agentQuery(id));
  const found = agent.data;
  return (
    <Page
      title={found?.name ?? t("app.agents")}
      actions={
        found && (
          <>
            <ButtonLink size="sm" to={`/agents/proposals?token=${id}`}>
              {t("agents.proposals")}
            </ButtonLink>
            <ChangePurse agent={found} />
            <RevokeAgent agent={found} onRevoked={() => void navigate("/agents")} />
          </>
        )
      }
    >
      <Sections />
      {agent.isError && <LoadError error={agent.error} retry={() => void agent.refetch()} />}
      {agent.isPending && <Loading />}
      {found && (
        <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(0,2fr)]">
          <Card title={t("agents.purse")}>
            <PurseFacts agent={found} />
          </Card>
          <Events id={id} />
        </div>
      )}
    </Page>
  );
}

function Events({ id }: { id: string }) {
  const { t } = useTranslation();
  const [page, setPage] = useState(1);
  const events = useQuery(agentEventsQuery(id, page));
  const found = events.data;
  const tasks = found?.items.filter(isOfTask).map(({ target }) => target) ?? [];
  const names = useTaskNames(tasks);
  return (
    <Card title={t("agents.whatItDid")}>
      {events.isError && <LoadError error={events.error} retry={() => void events.refetch()} />}
      {found?.items.length === 0 && <p className="text-sm text-muted">{t("agents.didNothing")}</p>}
      {found && found.items.length > 0 && (
        <>
          <Table
            label={t("agents.whatItDid")}
            columns={[
              { label: t("agents.time") },
              { label: t("agents.action") },
              { label: t("agents.target") },
              { label: t("agents.undo") },
            ]}
          >
            {found.items.map((event) => (
              <EventRow key={event.id} event={event} names={names} />
            ))}
          </Table>
          <Pager
            count={t("agents.events", { count: found.total })}
            pages={Math.ceil(found.total / EVENTS_PER_PAGE)}
            page={page}
            onPage={setPage}
          />
        </>
      )}
    </Card>
  );
}

const isOfTask = ({ action }: AgentEvent) => action.startsWith("task.");

function EventRow({ event, names }: { event: AgentEvent; names: TaskNames | undefined }) {
  const { t } = useTranslation();
  const { at, action, target, undo, undoRefusal } = event;
  return (
    <tr className={ROW}>
      <td className="whitespace-nowrap">{formatDateTime(at)}</td>
      <td>{t(`agents.actionOf.${action.replace(".", "_") as "task_create"}`, { defaultValue: action })}</td>
      <td className="break-all">
        {isOfTask(event) ? (
          <TaskLink id={target} names={names} />
        ) : action === "proposal.create" ? (
          <TextLink to={`/agents/proposals/${target}`}>{target}</TextLink>
        ) : (
          target
        )}
      </td>
      <td>{undo ? <Undo event={event} /> : <span className="text-muted">{undoRefusal?.message}</span>}</td>
    </tr>
  );
}

function Undo({ event }: { event: AgentEvent }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const way = event.undo as "stop" | "retry" | "resume" | "pause";
  const undo = useMutation({
    mutationFn: () => undoEvent(event.id),
    onError: (error) => toastError(t, error),
    onSuccess: () => toast.success(t("agents.undone")),
    onSettled: () => invalidateAgents(client),
  });
  return (
    <ConfirmDialog
      title={t(`agents.undoTitle.${way}`)}
      description={t("agents.undoHint")}
      action={t(`agents.undoBy.${way}`)}
      onConfirm={() => undo.mutate()}
      trigger={
        <Button size="sm" disabled={undo.isPending}>
          {t(`agents.undoBy.${way}`)}
        </Button>
      }
    />
  );
}
