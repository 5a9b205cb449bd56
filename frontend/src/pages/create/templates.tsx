import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { taskTemplatesQuery } from "@/api/task-templates";
import type { CreateRequest, Notice, TaskTemplate } from "@/api/types";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { LoadError, Loading } from "@/ui/errors";
import { type Draft, buildDraft } from "./draft";

type Variant = "full" | "small";

/** Use cases that fill in the form, in full or small. */
export default function Templates({ onTake }: { onTake: (draft: Draft) => void }) {
  const { t } = useTranslation();
  const templates = useQuery(taskTemplatesQuery);
  const [taken, setTaken] = useState<{ id: string; variant: Variant; missing: Notice[] }>();
  const take = ({ id, ...template }: TaskTemplate, variant: Variant) => {
    const { request, missing } = template[variant];
    setTaken({ id, variant, missing });
    onTake(buildDraft(request as CreateRequest));
  };
  if (templates.isPending) return <Loading />;
  if (templates.isError) return <LoadError error={templates.error} retry={() => void templates.refetch()} />;
  return (
    <ul className="mt-3 grid gap-3 xl:grid-cols-3">
      {templates.data.map((each) => (
        <li key={each.id} className="flex flex-col gap-2 rounded-lg border p-3 text-sm">
          <p className="font-medium">{each.title}</p>
          <p>{each.need}</p>
          <p className="text-muted">{each.setting}</p>
          <p>{each.advantages.join(" · ")}</p>
          <ul className="grow space-y-1 text-muted">
            {each.notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
          {taken?.id === each.id && (
            <Callout tone={taken.missing.length > 0 ? "warn" : "ok"} role="status">
              {t(taken.variant === "full" ? "create.template.filled" : "create.template.filledSmall")}
              {taken.missing.map(({ code, message, hint }) => (
                <span key={code} className="block">
                  {message} {hint}
                </span>
              ))}
            </Callout>
          )}
          <div className="flex flex-wrap gap-2">
            <Button size="sm" onClick={() => take(each, "full")}>
              {t("create.template.take")}
            </Button>
            <Button size="sm" look="ghost" onClick={() => take(each, "small")}>
              {t("create.template.takeSmall")}
            </Button>
          </div>
        </li>
      ))}
    </ul>
  );
}
