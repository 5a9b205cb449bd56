import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Clock, Copy, ExternalLink, Play, RotateCcw, SlidersHorizontal, Square, Trash2 } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import {
  invalidateEnvironments,
  type ManagedEnvironment,
  type EnvironmentAction,
  buildOpenUrl,
  environmentMutation,
  type EnvironmentOperation,
} from "@/api/managed-environments";
import type { Environment } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";
import { Button, ButtonAnchor } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { toast } from "@/ui/toast";
import { SIZE_FIELDS } from "./sizes";

export const KEEP_HOURS = 2;

interface ActionsProps {
  environment: Environment;
  hosted: ManagedEnvironment;
  /** In a list there is room for the nearest: to open it, or to start it. */
  brief?: boolean;
}

const LIST_ACTIONS: EnvironmentAction[] = ["open", "start"];
/** What is done of each by a press; the others ask for something first. */
const DONE = {
  start: "hosted.startDone",
  stop: "hosted.stopDone",
  restart: "hosted.restartDone",
  keep: "hosted.keepDone",
  delete: "hosted.deleteDone",
} as const;

/** What may be done is what the server says may be done. */
export function EnvironmentActions({ environment, hosted, brief = false }: ActionsProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { id, name, kind } = environment;
  const act = useMutation(environmentMutation(client, id));
  const press = (which: keyof typeof DONE) =>
    act.mutate(
      { act: which, ...(which === "keep" && { body: { hours: KEEP_HOURS } }) },
      {
        onSuccess: () => {
          toast.success(t(DONE[which]));
          if (which === "delete") void navigate("/environments");
        },
        onError: (error) => toastError(t, error),
      },
    );
  const size = brief ? ("sm" as const) : ("md" as const);
  const wired = { size, disabled: act.isPending };
  const busy = hosted.kernels.filter((kernel) => kernel.busy).map((kernel) => kernel.name);
  const confirmed = (which: "stop" | "restart" | "delete", icon: ReactNode, description: string, title: string) => (
    <ConfirmDialog
      key={which}
      danger={which !== "restart"}
      title={title}
      description={description}
      action={t(`hosted.${which}`)}
      onConfirm={() => press(which)}
      trigger={
        <Button {...wired}>
          {icon}
          {t(`hosted.${which}`)}
        </Button>
      }
    />
  );
  const buttons: Record<EnvironmentAction, () => ReactNode> = {
    open: () => (
      <ButtonAnchor
        key="open"
        look={brief ? "secondary" : "primary"}
        size={size}
        href={buildOpenUrl(id)}
        target="_blank"
        rel="noreferrer"
        {...(brief && { "aria-label": t("hosted.openDoor", { name }) })}
      >
        <ExternalLink />
        {t(brief ? "hosted.open" : `hosted.openOf.${kind}`)}
      </ButtonAnchor>
    ),
    start: () => (
      <Button
        key="start"
        look={brief ? "secondary" : "primary"}
        {...wired}
        {...(brief && { "aria-label": `${t("hosted.start")} ${name}` })}
        onClick={() => press("start")}
      >
        <Play />
        {t("hosted.start")}
      </Button>
    ),
    keep: () => <KeepButton key="keep" id={id} />,
    stop: () =>
      confirmed(
        "stop",
        <Square />,
        busy.length > 0 ? t("hosted.stopBusy", { kernels: busy.join(t("queue.comma")) }) : t("hosted.stopHint"),
        t("hosted.stopTitle"),
      ),
    restart: () => confirmed("restart", <RotateCcw />, t("hosted.restartHint"), t("hosted.restartTitle")),
    resize: () => <Resize key="resize" environment={environment} hosted={hosted} />,
    clone: () => (
      <FormDialog
        key="clone"
        title={t("hosted.clone")}
        description={t("hosted.cloneHint")}
        submit={t("hosted.clone")}
        fields={["name"]}
        trigger={
          <Button {...wired}>
            <Copy />
            {t("hosted.clone")}
          </Button>
        }
        onSubmit={async (texts) => {
          const made = await act.mutateAsync({ act: "clone", body: texts });
          toast.success(t("hosted.cloneDone"));
          if (made) await navigate(`/environments/${made.id}`);
        }}
      >
        {(problem) => (
          <TextField name="name" label={t("hosted.cloneName")} defaultValue={`${name}-2`} error={problem("name")} />
        )}
      </FormDialog>
    ),
    delete: () => confirmed("delete", <Trash2 />, t("hosted.deleteHint"), t("hosted.deleteTitle", { name })),
  };
  const offered = (Object.keys(buttons) as EnvironmentAction[]).filter((each) => hosted.allowedActions.includes(each));
  return <>{offered.filter((each) => !brief || LIST_ACTIONS.includes(each)).map((each) => buttons[each]())}</>;
}

export function KeepButton({ id }: { id: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const keep = useMutation({
    ...environmentMutation(client, id),
    onSuccess: () => toast.success(t("hosted.keepDone")),
    onError: (error) => toastError(t, error),
  });
  const act: EnvironmentOperation = "keep";
  return (
    <Button disabled={keep.isPending} onClick={() => keep.mutate({ act, body: { hours: KEEP_HOURS } })}>
      <Clock />
      {t("hosted.keep")}
    </Button>
  );
}

/** Only what was changed is sent. */
function Resize({ environment, hosted }: { environment: Environment; hosted: ManagedEnvironment }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const act = useMutation(environmentMutation(client, environment.id));
  const known: Partial<Record<string, number>> = {
    gpuCount: environment.gpuCount,
    cpuCores: environment.cpuCores,
    memoryGb: environment.memoryGb,
    sharedMemoryGb: hosted.sharedMemoryGb,
    diskGb: hosted.diskGb,
  };
  return (
    <FormDialog
      title={t("hosted.resize")}
      description={t("hosted.resizeHint")}
      submit={t("app.save")}
      fields={SIZE_FIELDS}
      trigger={
        <Button>
          <SlidersHorizontal />
          {t("hosted.resize")}
        </Button>
      }
      onSubmit={async (texts) => {
        const changed = SIZE_FIELDS.filter((name) => texts[name] !== "" && texts[name] !== String(known[name] ?? ""));
        const body = Object.fromEntries(changed.map((name) => [name, parseNumber(texts[name] ?? "")]));
        await act.mutateAsync({ act: "resize", body });
        await invalidateEnvironments(client);
        toast.success(t("hosted.resizeDone"));
      }}
    >
      {(problem) => (
        <div className="grid items-start gap-4 sm:grid-cols-2">
          {SIZE_FIELDS.map((name) => (
            <TextField
              key={name}
              name={name}
              label={t(`hosted.${name}`)}
              inputMode="numeric"
              defaultValue={known[name]}
              error={problem(name)}
            />
          ))}
        </div>
      )}
    </FormDialog>
  );
}
