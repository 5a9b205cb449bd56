import { useQuery } from "@tanstack/react-query";
import { Braces } from "lucide-react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import { workerEnvironmentQuery } from "@/api/workers";
import { quoteForShell } from "@/lib/shell";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { CodeBlock } from "@/ui/code-block";
import { LoadError, Loading } from "@/ui/errors";
import { formatProblems } from "@/ui/form-dialog";
import { Modal } from "@/ui/modal";

/** Variables that connect the processes, in reading order. */
const FIRST_VARIABLES = [
  "MASTER_ADDR",
  "MASTER_PORT",
  "WORLD_SIZE",
  "RANK",
  "LOCAL_RANK",
  "NODE_RANK",
  "LOCAL_WORLD_SIZE",
];

/** Formats variables as shell commands. */
export function formatExports(env: Record<string, string>): string {
  const place = (name: string) =>
    FIRST_VARIABLES.includes(name) ? FIRST_VARIABLES.indexOf(name) : FIRST_VARIABLES.length;
  return Object.entries(env)
    .sort(([a], [b]) => place(a) - place(b) || (a < b ? -1 : 1))
    .map(([name, value]) => `export ${name}=${quoteForShell(value)}\n`)
    .join("");
}

export function EnvironmentPreview({ id }: { id: string }) {
  const { t } = useTranslation();
  return (
    <Modal
      wide
      title={t("workers.environment", { id })}
      description={t("workers.environmentHint")}
      trigger={
        <Button look="ghost" size="icon" aria-label={t("workers.showEnvironment", { id })}>
          <Braces />
        </Button>
      }
    >
      <Variables id={id} />
    </Modal>
  );
}

function Variables({ id }: { id: string }) {
  const environment = useQuery(workerEnvironmentQuery(id));
  if (environment.error instanceof ApiError && environment.error.status === 409)
    return <Callout tone="info">{environment.error.message}</Callout>;
  if (environment.isError) return <LoadError error={environment.error} retry={() => void environment.refetch()} />;
  if (environment.isPending) return <Loading />;
  const { env, problems } = environment.data;
  return (
    <div className="space-y-3">
      {problems.length > 0 && (
        <Callout tone="warn">
          {problems.map((problem, index) => (
            <p key={index}>{formatProblems(problem)}</p>
          ))}
        </Callout>
      )}
      {Object.keys(env).length > 0 && <CodeBlock name={`${id}.sh`} content={formatExports(env)} />}
    </div>
  );
}
