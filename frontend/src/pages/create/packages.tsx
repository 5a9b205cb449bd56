import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { PackagePlus } from "lucide-react";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import {
  type PackageInstallations,
  installationsQuery,
  installMissingPackages,
  type TaskPackages,
} from "@/api/packages";
import { Badge, type Tone } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { CodeBlock } from "@/ui/code-block";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { Collapsible } from "@/ui/collapsible";
import { MessageList, type Message } from "@/ui/message-list";

type Installation = PackageInstallations["items"][number];

const TONE: Record<Installation["state"], Tone> = { waiting: "idle", running: "info", done: "ok", failed: "bad" };
const MAX_LISTED = 6;

/** Differences between the environments' packages, packages that the script lacks, and a button that installs them. */
export default function Packages({ packages }: { packages: TaskPackages }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { environments, differences, missing, level: wanted, looking, python } = packages;
  const ids = environments.map(({ environmentId }) => environmentId);
  const level = useMutation({
    mutationFn: () => installMissingPackages(ids, wanted, python),
    onError: (error) => toastError(t, error),
  });
  const id = level.data?.id;
  const installations = useQuery({ ...installationsQuery(id ?? ""), enabled: id !== undefined }).data ?? level.data;
  const over = installations?.over ?? false;
  useEffect(() => {
    if (over) void client.invalidateQueries({ queryKey: ["task-preview"] });
  }, [client, over]);

  const nameOf = new Map(environments.map(({ environmentId, name }) => [environmentId, name]));
  const names = (ids: string[]) => ids.map((each) => nameOf.get(each) ?? each).join(", ");
  const isInstalling = level.isPending || (installations !== undefined && !over);
  const notes: Message[] = [
    ...missing.map(({ module, environmentIds, place, requirement }): Message => ({
      id: `missing ${module}`,
      level: "warn",
      message: t("managedEnvironment.packages.missing", { module, environments: names(environmentIds) }),
      hint: requirement
        ? t("managedEnvironment.packages.imported", { place })
        : t("managedEnvironment.packages.unknown", { place }),
    })),
    ...differences.map(({ kind, name, fatal, values }): Message => ({
      id: `${kind} ${name}`,
      level: fatal ? "fail" : "warn",
      message: t("managedEnvironment.packages.differs", { name, values: formatVersions(values, names) }),
      hint: fatal && t("managedEnvironment.packages.fatal"),
    })),
    ...environments.flatMap(({ environmentId, state, reason }): Message[] =>
      state === "failed" && reason
        ? [{ id: environmentId, level: "info", message: reason.message, hint: reason.hint }]
        : [],
    ),
  ];
  if (notes.length === 0 && !looking && !installations) return null;
  return (
    <Card
      title={t("managedEnvironment.packages.title")}
      aside={
        wanted.length > 0 && (
          <ConfirmDialog
            title={t("managedEnvironment.packages.installTitle", { packages: wanted.join(", ") })}
            description={t("managedEnvironment.packages.installHint", { environments: names(ids) })}
            action={t("managedEnvironment.packages.install")}
            onConfirm={() => level.mutate()}
            trigger={
              <Button size="sm" disabled={isInstalling}>
                <PackagePlus />
                {t("managedEnvironment.packages.install")}
              </Button>
            }
          />
        )
      }
    >
      {looking && (
        <p role="status" className="mb-2 text-sm text-muted">
          {t("managedEnvironment.packages.looking")}
        </p>
      )}
      <MessageList notes={notes} label={t("managedEnvironment.packages.title")} most={MAX_LISTED} />
      {installations && (
        <ul aria-live="polite" className="mt-3 space-y-2 text-sm">
          {installations.items.map((each) => (
            <Progress key={each.environmentId} installation={each} />
          ))}
        </ul>
      )}
    </Card>
  );
}

function Progress({ installation: { name, state, output, reason } }: { installation: Installation }) {
  const { t } = useTranslation();
  const title = (
    <span className="flex min-w-0 flex-wrap items-center gap-2">
      <span className="break-words">{name}</span>
      <Badge tone={TONE[state]}>{t(`managedEnvironment.packages.state.${state}`)}</Badge>
    </span>
  );
  return (
    <li>
      {output ? (
        <Collapsible title={title} wanted={state === "failed"} summaryClassName="w-fit">
          <div className="mt-1">
            <CodeBlock name="pip.log" content={output} />
          </div>
        </Collapsible>
      ) : (
        title
      )}
      {reason && <p className="break-words text-bad-ink">{reason.message}</p>}
    </li>
  );
}

/** Formats versions with their environments: `2.5.1 (a, b), 2.4.0 (c)`. */
function formatVersions(values: Record<string, string>, names: (ids: string[]) => string): string {
  const byVersion = new Map<string, string[]>();
  for (const [id, version] of Object.entries(values)) {
    byVersion.set(version || "–", [...(byVersion.get(version || "–") ?? []), id]);
  }
  return [...byVersion].map(([version, ids]) => `${version} (${names(ids)})`).join(", ");
}
