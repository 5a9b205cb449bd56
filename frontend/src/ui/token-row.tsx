import type { UseMutationResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";

interface Props {
  name: string;
  /** Creation, expiry and the like. */
  facts: ReactNode;
  title: string;
  hint: string;
  /** Undefined: it cannot be revoked. */
  revoke?: UseMutationResult<unknown, Error, void>;
  /** A control before its name. */
  before?: ReactNode;
}

/** A token in a list, which can be revoked. */
export function TokenRow({ name, facts, title, hint, revoke, before }: Props) {
  const { t } = useTranslation();
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 py-2.5">
      {before}
      <span className="min-w-0 flex-1 basis-40">
        <span className="font-medium break-words">{name}</span>
        <span className="block text-muted">{facts}</span>
      </span>
      {revoke && (
        <ConfirmDialog
          danger
          title={title}
          description={hint}
          action={t("settings.revoke")}
          onConfirm={() => revoke.mutate()}
          trigger={
            <Button size="sm" disabled={revoke.isPending}>
              {t("settings.revoke")}
            </Button>
          }
        />
      )}
    </li>
  );
}
