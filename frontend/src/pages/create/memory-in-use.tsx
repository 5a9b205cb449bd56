import { useMutation, useQueryClient } from "@tanstack/react-query";
import { BellRing, Clock, Square } from "lucide-react";
import { useTranslation } from "react-i18next";
import { notifyOwner, shutdownKernel } from "@/api/managed-environments";
import type { EnvironmentInUse, MemoryHolder } from "@/api/types";
import { formatBytes, formatShortTime } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { toast } from "@/ui/toast";
import type { Draft } from "./draft";

interface MemoryInUseProps {
  draft: Draft;
  inUse: EnvironmentInUse[];
  onChange: (patch: Partial<Draft>) => void;
}

/** Memory in use in the selected environments, by whom, and what to do about it: wait, ask, or stop one's own. */
export default function MemoryInUse({ draft, inUse, onChange }: MemoryInUseProps) {
  const { t } = useTranslation();
  const waits = draft.plain.whenInUse === "wait";
  return (
    <Card
      title={t("managedEnvironment.inUse.title")}
      aside={
        <Button
          size="sm"
          aria-pressed={waits}
          onClick={() => onChange({ plain: { ...draft.plain, whenInUse: waits ? "" : "wait" } })}
        >
          <Clock />
          {t(waits ? "managedEnvironment.inUse.startAnyway" : "managedEnvironment.inUse.wait")}
        </Button>
      }
    >
      <p role="status" className="mb-2 text-sm text-muted">
        {t(waits ? "managedEnvironment.inUse.waiting" : "managedEnvironment.inUse.hint")}
      </p>
      <ul className="space-y-3 text-sm">
        {inUse.map((each) => (
          <Environment key={each.environmentId} inUse={each} />
        ))}
      </ul>
    </Card>
  );
}

function Environment({ inUse: { environmentId, environment, processes, gpus } }: { inUse: EnvironmentInUse }) {
  const { t } = useTranslation();
  const ask = useMutation({
    mutationFn: () => notifyOwner(environmentId),
    onSuccess: () => toast.success(t("managedEnvironment.inUse.asked", { environment })),
    onError: (error) => toastError(t, error),
  });
  const others = processes.some(({ mine }) => !mine);
  return (
    <li>
      <div className="flex flex-wrap items-center justify-between gap-2">
        <span className="font-medium break-words">{environment}</span>
        {others && (
          <Button size="sm" look="ghost" disabled={ask.isPending || ask.isSuccess} onClick={() => ask.mutate()}>
            <BellRing />
            {t("managedEnvironment.inUse.ask")}
          </Button>
        )}
      </div>
      <ul className="mt-1 divide-y rounded-lg border">
        {processes.map((each) => (
          <Holder key={`${each.kind}/${each.id}`} environment={environmentId} holder={each} />
        ))}
      </ul>
      {gpus.map(({ index, freeBytes, totalBytes }) => (
        <p key={index} className="mt-1 text-muted">
          {t("managedEnvironment.inUse.left", { index, free: formatBytes(freeBytes), total: formatBytes(totalBytes) })}
        </p>
      ))}
    </li>
  );
}

function Holder({ environment, holder }: { environment: string; holder: MemoryHolder }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { kind, id, name, owner, since, rssBytes, gpuBytes, mine } = holder;
  const end = useMutation({
    mutationFn: () => shutdownKernel(environment, id),
    onSuccess: () => toast.success(t("managedEnvironment.endKernelDone")),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: ["task-preview"] }),
  });
  const facts = [
    t(`managedEnvironment.inUse.${kind}`),
    owner ?? "",
    since === null
      ? ""
      : t("managedEnvironment.inUse.since", { time: formatShortTime(new Date(since * 1000).toISOString()) }),
    gpuBytes > 0 ? t("managedEnvironment.inUse.gpu", { size: formatBytes(gpuBytes) }) : "",
    rssBytes > 0 ? t("managedEnvironment.inUse.rss", { size: formatBytes(rssBytes) }) : "",
  ].filter(Boolean);
  return (
    <li className="flex flex-wrap items-center gap-2 px-3 py-2">
      <span className="min-w-0 flex-1">
        <span className="flex flex-wrap items-center gap-1.5 break-words">
          {name}
          {mine && <Badge>{t("managedEnvironment.inUse.mine")}</Badge>}
        </span>
        <span className="block text-muted">{facts.join(" · ")}</span>
      </span>
      {mine && kind === "kernel" && (
        <ConfirmDialog
          danger
          title={t("managedEnvironment.endKernelTitle", { name })}
          description={t("managedEnvironment.endKernelHint")}
          action={t("managedEnvironment.inUse.end")}
          onConfirm={() => end.mutate()}
          trigger={
            <Button size="sm" disabled={end.isPending}>
              <Square />
              {t("managedEnvironment.inUse.end")}
            </Button>
          }
        />
      )}
    </li>
  );
}
