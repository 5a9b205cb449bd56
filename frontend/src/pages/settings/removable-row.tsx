import type { UseMutationResult } from "@tanstack/react-query";
import { X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";

interface Props {
  name: ReactNode;
  /** Details and controls. */
  children: ReactNode;
  /** Further details over the whole width. */
  below?: ReactNode;
  /** The label of the remove button. */
  label: string;
  title: string;
  hint: string;
  /** Undefined: it cannot be removed. */
  remove?: UseMutationResult<unknown, Error, void>;
}

/** Something that can be removed from a project, after a confirmation. */
export function RemovableRow({ name, children, below, label, title, hint, remove }: Props) {
  const { t } = useTranslation();
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 py-2">
      <span className="min-w-0 flex-1 basis-40 break-words">{name}</span>
      <span className="ml-auto flex items-center justify-end gap-2">
        {children}
        {remove && (
          <ConfirmDialog
            danger
            title={title}
            description={hint}
            action={t("settings.remove")}
            onConfirm={() => remove.mutate()}
            trigger={
              <Button look="ghost" size="icon" aria-label={label} disabled={remove.isPending}>
                <X />
              </Button>
            }
          />
        )}
      </span>
      {below && <div className="min-w-0 basis-full">{below}</div>}
    </li>
  );
}
