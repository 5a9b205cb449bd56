import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { deleteRoleRule, invalidateRoleRules, previewRoleRules, type RoleRule } from "@/api/role-rules";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { ErrorMessage, LoadError, Loading } from "@/ui/errors";
import { Modal, ModalClose } from "@/ui/modal";
import { toast } from "@/ui/toast";
import { Preview } from "./preview";

/** Deletes a rule after its preview. */
export function DeleteRule({ rule }: { rule: RoleRule }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const label = t("roleRules.deleteOf", { pattern: rule.pattern });
  return (
    <Modal
      wide
      open={open}
      onOpenChange={setOpen}
      title={t("roleRules.deleteTitle", { pattern: rule.pattern })}
      description={t("roleRules.deleteHint")}
      trigger={
        <Button look="ghost" size="icon" aria-label={label} title={label}>
          <Trash2 />
        </Button>
      }
    >
      <Deletion rule={rule} onDeleted={() => setOpen(false)} />
    </Modal>
  );
}

function Deletion({ rule, onDeleted }: { rule: RoleRule; onDeleted: () => void }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const preview = useQuery({
    queryKey: ["role-rule-deletion", rule.id],
    queryFn: () => previewRoleRules({ ruleId: rule.id }),
    gcTime: 0,
  });
  const remove = useMutation({
    mutationFn: (fingerprint: string) => deleteRoleRule(rule.id, fingerprint),
    onSuccess: () => {
      toast.success(t("roleRules.deleted"));
      onDeleted();
    },
    onError: () => preview.refetch(),
    onSettled: () => invalidateRoleRules(client),
  });
  const { data, isFetching } = preview;
  return (
    <div className="space-y-4">
      {remove.error && (
        <Callout tone="bad" role="alert">
          <ErrorMessage error={remove.error} />
        </Callout>
      )}
      {preview.isError && <LoadError error={preview.error} retry={() => void preview.refetch()} />}
      {preview.isPending && <Loading />}
      {data && <Preview preview={data} />}
      <div className="flex justify-end gap-2">
        <ModalClose asChild>
          <Button>{t("app.cancel")}</Button>
        </ModalClose>
        <Button
          look="danger"
          disabled={!data || isFetching || remove.isPending}
          onClick={() => data && remove.mutate(data.fingerprint)}
        >
          {t("roleRules.delete")}
        </Button>
      </div>
    </div>
  );
}
