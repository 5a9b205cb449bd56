import { useMutation } from "@tanstack/react-query";
import { Ellipsis } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { changePerson, createInvitation, endPersonSessions, resetSecondFactors } from "@/api/people";
import type { Invitation, Person } from "@/api/types";
import { buildAuditAddress } from "@/lib/audit-address";
import { Button } from "@/ui/button";
import { toastError } from "@/ui/errors";
import { Menu, MenuItem } from "@/ui/menu";
import { Modal, ModalClose } from "@/ui/modal";
import { toast } from "@/ui/toast";
import { InvitationLink } from "./invitation-link";
import { useRefreshPeople } from "./use-refresh-people";

type Action = "deactivate" | "administrator" | "reset" | "end" | "invite";

/** What an administrator may do with another account; what ends something is confirmed first. */
export function PersonMenu({ person }: { person: Person }) {
  const { t } = useTranslation();
  const { username: name, isActive, isAdministrator, isService, hasSecondFactor } = person;
  const [action, setAction] = useState<Action>();
  const [tokens, setTokens] = useState(false);
  const [invitation, setInvitation] = useState<Invitation>();
  const refresh = useRefreshPeople();
  const navigate = useNavigate();
  const run = useMutation({
    mutationFn: async (work: () => Promise<unknown>) => {
      await work();
    },
    onError: (error) => toastError(t, error),
    onSettled: refresh,
  });
  const end = async () => {
    const { sessions } = await endPersonSessions(name, tokens);
    toast.success(t("people.ended", { count: sessions }));
  };
  const texts: Record<Action, [title: string, hint: string, work: () => Promise<unknown>]> = {
    deactivate: [
      t("people.deactivateTitle", { name }),
      t("people.deactivateHint"),
      () => changePerson(name, { isActive: false }),
    ],
    administrator: [
      t("people.makeAdministratorTitle", { name }),
      t("people.makeAdministratorHint"),
      () => changePerson(name, { isAdministrator: true }),
    ],
    reset: [t("people.resetTitle", { name }), t("people.resetHint"), () => resetSecondFactors(name)],
    end: [t("people.endTitle", { name }), t("people.endHint"), end],
    invite: [
      t("people.inviteTitle", { name }),
      t("people.inviteHint"),
      async () => setInvitation(await createInvitation(name)),
    ],
  };
  return (
    <>
      <Menu
        label={t("people.actions", { name })}
        trigger={
          <Button look="ghost" size="icon" aria-label={t("people.actions", { name })} disabled={run.isPending}>
            <Ellipsis />
          </Button>
        }
      >
        <MenuItem onSelect={() => void navigate(buildAuditAddress({ actor: name }))}>{t("audit.events")}</MenuItem>
        {!isService && isActive && !hasSecondFactor && (
          <MenuItem onSelect={() => setAction("invite")}>{t("people.invite")}</MenuItem>
        )}
        {isActive && <MenuItem onSelect={() => setAction("end")}>{t("people.endSessions")}</MenuItem>}
        {hasSecondFactor && <MenuItem onSelect={() => setAction("reset")}>{t("people.resetSecondFactors")}</MenuItem>}
        {!isService && !isAdministrator && isActive && (
          <MenuItem onSelect={() => setAction("administrator")}>{t("people.makeAdministrator")}</MenuItem>
        )}
        {isAdministrator && (
          <MenuItem onSelect={() => run.mutate(() => changePerson(name, { isAdministrator: false }))}>
            {t("people.removeAdministrator")}
          </MenuItem>
        )}
        {isActive ? (
          <MenuItem danger onSelect={() => setAction("deactivate")}>
            {t("people.deactivate")}
          </MenuItem>
        ) : (
          <MenuItem onSelect={() => run.mutate(() => changePerson(name, { isActive: true }))}>
            {t("people.activate")}
          </MenuItem>
        )}
      </Menu>
      {action && (
        <Confirmation
          title={texts[action][0]}
          hint={texts[action][1]}
          onConfirm={() => run.mutate(texts[action][2])}
          onClose={() => setAction(undefined)}
        >
          {action === "end" && (
            <label className="flex items-center gap-2 text-sm">
              <input type="checkbox" checked={tokens} onChange={({ target }) => setTokens(target.checked)} />
              {t("people.endTokens")}
            </label>
          )}
        </Confirmation>
      )}
      {invitation && (
        <Modal title={t("people.invite")} open onOpenChange={() => setInvitation(undefined)}>
          <InvitationLink name={name} invitation={invitation} />
        </Modal>
      )}
    </>
  );
}

interface ConfirmationProps {
  title: string;
  hint: string;
  onConfirm: () => void;
  onClose: () => void;
  children?: ReactNode;
}

function Confirmation({ title, hint, onConfirm, onClose, children }: ConfirmationProps) {
  const { t } = useTranslation();
  return (
    <Modal title={title} description={hint} open onOpenChange={onClose}>
      {children}
      <div className="mt-5 flex justify-end gap-2">
        <ModalClose asChild>
          <Button>{t("app.cancel")}</Button>
        </ModalClose>
        <ModalClose asChild>
          <Button look="danger" onClick={onConfirm}>
            {t("people.confirm")}
          </Button>
        </ModalClose>
      </div>
    </Modal>
  );
}
