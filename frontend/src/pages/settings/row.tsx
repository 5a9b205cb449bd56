import type { UseMutationResult } from "@tanstack/react-query";
import { X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { Confirm } from "@/ui/confirm";

interface Props {
  name: ReactNode;
  /** What is known of it, and how it is changed. */
  children: ReactNode;
  /** Says of the button what it removes. */
  label: string;
  title: string;
  hint: string;
  /** Not offered without. */
  remove?: UseMutationResult<unknown, Error, void>;
}

/** Something of a project that can be taken out of it, after a question. */
export function RemovableRow({ name, children, label, title, hint, remove }: Props) {
  const { t } = useTranslation();
  return (
    <li className="flex items-center gap-3 py-2">
      <span className="min-w-0 flex-1 break-words">{name}</span>
      {children}
      {remove && (
        <Confirm
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
    </li>
  );
}
