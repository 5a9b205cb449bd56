import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { AgentToken } from "@/api/agents";
import { meQuery } from "@/api/session";
import { formatDateTime, formatGpuTime, formatMoney } from "@/lib/format";
import { DefinitionList } from "@/ui/table";

interface BarProps {
  label: string;
  spent: number;
  /** What unfinished tasks may still use; null: one of them has no end. */
  reserved: number | null;
  limit: number | null;
  format: (value: number) => string;
}

/** What is spent, what unfinished tasks may still use, and what is left. */
function PurseBar({ label, spent, reserved, limit, format }: BarProps) {
  const { t } = useTranslation();
  const left = limit === null ? null : reserved === null ? 0 : Math.max(0, limit - spent - reserved);
  const text = [
    t("agents.spent", { amount: format(spent) }),
    ...(reserved === null || reserved > 0
      ? [reserved === null ? t("agents.reservedEndless") : t("agents.reserved", { amount: format(reserved) })]
      : []),
    left === null ? t("agents.noLimit") : t("agents.left", { amount: format(left) }),
  ].join(" · ");
  const share = (value: number) => (limit ? Math.min(1, value / limit) : value > 0 ? 1 : 0);
  const used = share(spent);
  const both = reserved === null ? 1 : share(spent + reserved);
  return (
    <div className="space-y-1 text-sm">
      <div className="flex justify-between gap-3">
        <span className="font-medium">{label}</span>
        {limit !== null && <span className="tabular-nums">{format(limit)}</span>}
      </div>
      {limit !== null && (
        <div
          role="meter"
          aria-label={label}
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={Math.round(used * 100)}
          aria-valuetext={text}
          className="relative h-2 overflow-hidden rounded-full bg-sunken"
        >
          <div className="absolute inset-y-0 left-0 bg-accent opacity-40" style={{ width: `${both * 100}%` }} />
          <div
            className={`absolute inset-y-0 left-0 ${used >= 1 ? "bg-bad" : "bg-accent"}`}
            style={{ width: `${used * 100}%` }}
          />
        </div>
      )}
      <p className="text-muted">{text}</p>
    </div>
  );
}

/** A purse with its bars and its other limits. */
export function PurseFacts({ agent }: { agent: AgentToken }) {
  const { t } = useTranslation();
  const projects = useQuery(meQuery).data?.projects ?? [];
  const { purse, spent, reserved, currency } = agent;
  const names = agent.projects.map((id) => projects.find((project) => project.id === id)?.name ?? id);
  const facts: [string, ReactNode][] = [
    [
      t("agents.unfinished"),
      purse.maxRunning === null
        ? String(agent.unfinishedTasks)
        : t("agents.unfinishedOf", { count: agent.unfinishedTasks, limit: purse.maxRunning }),
    ],
    ...(purse.preemptibleOnly ? [[t("agents.preemptible"), t("agents.yes")] as [string, ReactNode]] : []),
    [t("agents.environments"), purse.environments ? purse.environments.join(", ") || "–" : t("agents.allEnvironments")],
    [t("agents.projects"), names.join(", ")],
    [t("agents.user"), agent.user],
    [t("agents.expires"), agent.expiresAt ? formatDateTime(agent.expiresAt) : t("agents.never")],
    [t("agents.lastUsed"), agent.lastUsedAt ? formatDateTime(agent.lastUsedAt) : t("agents.unused")],
  ];
  return (
    <div className="space-y-3">
      <PurseBar
        label={t("agents.gpuHours")}
        spent={spent.gpuHours ?? 0}
        reserved={reserved.gpuHours}
        limit={purse.gpuHours}
        format={(value) => formatGpuTime(t, value)}
      />
      <PurseBar
        label={t("agents.money")}
        spent={spent.money ?? 0}
        reserved={reserved.money}
        limit={purse.money}
        format={(value) => formatMoney(value, currency)}
      />
      <DefinitionList facts={facts} />
    </div>
  );
}
