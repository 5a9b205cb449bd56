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
  /** For lists: only the next action, to open or to start. */
  brief?: boolean;
}

const LIST_ACTIONS: EnvironmentAction[] = ["open", "start"];
/** Messages after actions without a dialog. */
const DONE = {
  start: "managedEnvironment.startDone",
  stop: "managedEnvironment.stopDone",
  restart: "managedEnvironment.restartDone",
  keep: "managedEnvironment.keepDone",
  delete: "managedEnvironment.deleteDone",
} as const;

/** Buttons for the actions that the server allows. */
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
      action={t(`managedEnvironment.${which}`)}
      onConfirm={() => press(which)}
      trigger={
        <Button {...wired}>
          {icon}
          {t(`managedEnvironment.${which}`)}
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
        {...(brief && { "aria-label": t("managedEnvironment.openDoor", { name }) })}
      >
        <ExternalLink />
        {t(brief ? "managedEnvironment.open" : `managedEnvironment.openOf.${kind}`)}
      </ButtonAnchor>
    ),
    start: () => (
      <Button
        key="start"
        look={brief ? "secondary" : "primary"}
        {...wired}
        {...(brief && { "aria-label": `${t("managedEnvironment.start")} ${name}` })}
        onClick={() => press("start")}
      >
        <Play />
        {t("managedEnvironment.start")}
      </Button>
    ),
    keep: () => <KeepButton key="keep" id={id} />,
    stop: () =>
      confirmed(
        "stop",
        <Square />,
        busy.length > 0
          ? t("managedEnvironment.stopBusy", { kernels: busy.join(t("queue.comma")) })
          : t("managedEnvironment.stopHint"),
        t("managedEnvironment.stopTitle"),
      ),
    restart: () =>
      confirmed("restart", <RotateCcw />, t("managedEnvironment.restartHint"), t("managedEnvironment.restartTitle")),
    resize: () => <Resize key="resize" environment={environment} hosted={hosted} />,
    clone: () => (
      <FormDialog
        key="clone"
        title={t("managedEnvironment.clone")}
        description={t("managedEnvironment.cloneHint")}
        submit={t("managedEnvironment.clone")}
        fields={["name"]}
        trigger={
          <Button {...wired}>
            <Copy />
            {t("managedEnvironment.clone")}
          </Button>
        }
        onSubmit={async (texts) => {
          const made = await act.mutateAsync({ act: "clone", body: texts });
          toast.success(t("managedEnvironment.cloneDone"));
          if (made) await navigate(`/environments/${made.id}`);
        }}
      >
        {(problem) => (
          <TextField
            name="name"
            label={t("managedEnvironment.cloneName")}
            defaultValue={`${name}-2`}
            error={problem("name")}
          />
        )}
      </FormDialog>
    ),
    delete: () =>
      confirmed(
        "delete",
        <Trash2 />,
        t("managedEnvironment.deleteHint"),
        t("managedEnvironment.deleteTitle", { name }),
      ),
  };
  const offered = (Object.keys(buttons) as EnvironmentAction[]).filter((each) => hosted.allowedActions.includes(each));
  return <>{offered.filter((each) => !brief || LIST_ACTIONS.includes(each)).map((each) => buttons[each]())}</>;
}

export function KeepButton({ id }: { id: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const keep = useMutation({
    ...environmentMutation(client, id),
    onSuccess: () => toast.success(t("managedEnvironment.keepDone")),
    onError: (error) => toastError(t, error),
  });
  const act: EnvironmentOperation = "keep";
  return (
    <Button disabled={keep.isPending} onClick={() => keep.mutate({ act, body: { hours: KEEP_HOURS } })}>
      <Clock />
      {t("managedEnvironment.keep")}
    </Button>
  );
}

/** Changes the size. Only changed fields are sent. */
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
      title={t("managedEnvironment.resize")}
      description={t("managedEnvironment.resizeHint")}
      submit={t("app.save")}
      fields={SIZE_FIELDS}
      trigger={
        <Button>
          <SlidersHorizontal />
          {t("managedEnvironment.resize")}
        </Button>
      }
      onSubmit={async (texts) => {
        const changed = SIZE_FIELDS.filter((name) => texts[name] !== "" && texts[name] !== String(known[name] ?? ""));
        const body = Object.fromEntries(changed.map((name) => [name, parseNumber(texts[name] ?? "")]));
        await act.mutateAsync({ act: "resize", body });
        await invalidateEnvironments(client);
        toast.success(t("managedEnvironment.resizeDone"));
      }}
    >
      {(problem) => (
        <div className="grid items-start gap-4 sm:grid-cols-2">
          {SIZE_FIELDS.map((name) => (
            <TextField
              key={name}
              name={name}
              label={t(`managedEnvironment.${name}`)}
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
