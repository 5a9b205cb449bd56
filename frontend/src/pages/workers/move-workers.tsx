import { useQueryClient } from "@tanstack/react-query";
import { FolderInput } from "lucide-react";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import type { WorkerGroup } from "@/api/types";
import { moveWorkers, invalidateWorkers } from "@/api/workers";
import type { Selection } from "@/lib/use-selection";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog } from "@/ui/form-dialog";

export function MoveWorkers({ ticks, groups }: { ticks: Selection; groups: WorkerGroup[] }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const count = ticks.selected.length;
  const move = async ({ groupId }: Record<string, string>) => {
    await moveWorkers(ticks.selected, groupId || null);
    toast.success(t("workers.moved", { count }));
    ticks.clear();
    await invalidateWorkers(client);
  };
  return (
    <div className="ml-auto flex items-center gap-2">
      <span role="status" className="text-sm text-muted">
        {count > 0 && t("workers.selected", { count })}
      </span>
      <FormDialog
        title={t("workers.moveTitle", { count })}
        description={t("workers.moveHint")}
        submit={t("workers.move")}
        fields={["groupId"]}
        onSubmit={move}
        trigger={
          <Button disabled={count === 0}>
            <FolderInput />
            {t("workers.move")}
          </Button>
        }
      >
        {(problem) => (
          <Field label={t("workers.target")} error={problem("groupId")}>
            {(wiring) => (
              <select {...wiring} name="groupId" className="control">
                {groups.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {name}
                  </option>
                ))}
                <option value="">{t("workers.noGroup")}</option>
              </select>
            )}
          </Field>
        )}
      </FormDialog>
    </div>
  );
}
