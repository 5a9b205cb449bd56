import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import type { Overview } from "@/api/types";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";

/** Returns whether the platform has no tasks that the user may see. */
export const isUnused = ({ tasks }: Overview) => Object.values(tasks).every((count) => count === 0);

/** First steps, while nothing has been trained. */
export function GettingStarted({ overview: { gpus } }: { overview: Overview }) {
  const { t } = useTranslation();
  const without = gpus.total === 0;
  const steps = [
    {
      name: t("overview.begin.environment"),
      text: without ? t("overview.begin.noEnvironment") : t("overview.begin.gpus", { count: gpus.free }),
      action: (
        <ButtonLink look={without ? "primary" : "secondary"} to="/environments">
          {t("app.environments")}
        </ButtonLink>
      ),
    },
    {
      name: t("overview.begin.train"),
      text: t("overview.begin.trainHint"),
      action: (
        <ButtonLink look={without ? "secondary" : "primary"} to="/training/create">
          <Plus />
          {t("tasks.create")}
        </ButtonLink>
      ),
    },
    { name: t("overview.begin.watch"), text: t("overview.begin.watchHint") },
  ];
  return (
    <Card title={t("overview.begin.title")}>
      <ol className="grid gap-4 md:grid-cols-3">
        {steps.map(({ name, text, action }, index) => (
          <li key={name} className="flex flex-col items-start gap-1.5">
            <p className="font-medium">
              {index + 1}. {name}
            </p>
            <p className="mb-auto text-sm text-muted">{text}</p>
            {action}
          </li>
        ))}
      </ol>
    </Card>
  );
}
