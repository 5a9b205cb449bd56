import type { UseMutationResult } from "@tanstack/react-query";
import { X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";

interface Props {
  name: ReactNode;
  /** What is known of it, and how it is changed. */
  children: ReactNode;
  /** More of it, over the whole width. */
  below?: ReactNode;
  /** Says of the button what it removes. */
  label: string;
  title: string;
  hint: string;
  /** Not offered without. */
  remove?: UseMutationResult<unknown, Error, void>;
}

/** Something of a project that can be taken out of it, after a question. */
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
