import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import { PASSWORD_AGAIN, removeSecondFactor } from "@/api/second-factor";
import { PasswordAgain, SecondFactorSetup } from "@/pages/sign-in-steps/second-factor";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { Modal } from "@/ui/modal";

const secondFactorQuery = {
  queryKey: ["session", "has-second-factor"],
  queryFn: async () => {
    const response = await fetch("/_allauth/browser/v1/account/authenticators");
    const { data } = (await response.json()) as { data?: { type: string }[] };
    return Array.isArray(data) && data.some(({ type }) => type === "totp");
  },
};

/** The second factor of one's own account. */
export function SecondFactor() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const [asks, setAsks] = useState(false);
  const present = useQuery(secondFactorQuery);
  const refresh = () => client.invalidateQueries({ queryKey: secondFactorQuery.queryKey });
  const remove = useMutation({
    mutationFn: removeSecondFactor,
    onSuccess: refresh,
    onError: (error) => {
      if (error instanceof ApiError && error.code === PASSWORD_AGAIN) setAsks(true);
      else toastError(t, error);
    },
  });
  if (present.data === undefined) return null;
  return (
    <Card
      title={
        <span className="flex flex-wrap items-center gap-2">
          {t("secondFactor.title")}
          <Badge tone={present.data ? "ok" : "idle"}>{t(present.data ? "secondFactor.on" : "secondFactor.off")}</Badge>
        </span>
      }
      aside={
        present.data ? (
          <ConfirmDialog
            danger
            title={t("secondFactor.removeTitle")}
            description={t("secondFactor.removeHint")}
            action={t("secondFactor.remove")}
            onConfirm={() => remove.mutate()}
            trigger={
              <Button size="sm" disabled={remove.isPending}>
                {t("secondFactor.remove")}
              </Button>
            }
          />
        ) : (
          <Modal
            title={t("secondFactor.title")}
            open={open}
            onOpenChange={setOpen}
            trigger={<Button size="sm">{t("secondFactor.add")}</Button>}
          >
            <SecondFactorSetup
              onDone={() => {
                setOpen(false);
                void refresh();
              }}
            />
          </Modal>
        )
      }
    >
      <p className="text-sm text-muted">{t("secondFactor.hint")}</p>
      <Modal title={t("secondFactor.remove")} open={asks} onOpenChange={setAsks}>
        <PasswordAgain
          onDone={() => {
            setAsks(false);
            remove.mutate();
          }}
        />
      </Modal>
    </Card>
  );
}
