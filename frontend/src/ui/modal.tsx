import { X } from "lucide-react";
import { Dialog } from "radix-ui";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { cx } from "@/lib/cx";
import { Button } from "./button";

interface ModalProps {
  /** Undefined: something else opens it. */
  trigger?: ReactNode;
  title: string;
  description?: string | undefined;
  wide?: boolean | undefined;
  open?: boolean;
  onOpenChange?: (open: boolean) => void;
  children: ReactNode;
}

/** A dialog above the page, which keeps the focus until it is closed. */
export function Modal({ trigger, title, description, wide, open, onOpenChange, children }: ModalProps) {
  const { t } = useTranslation();
  return (
    <Dialog.Root {...(open !== undefined && { open })} {...(onOpenChange && { onOpenChange })}>
      {trigger && <Dialog.Trigger asChild>{trigger}</Dialog.Trigger>}
      <Dialog.Portal>
        <Dialog.Overlay className="fixed inset-0 z-40 bg-black/50" />
        <Dialog.Content
          {...(!description && { "aria-describedby": undefined })}
          className={cx(
            "fixed top-1/2 left-1/2 z-50 max-h-[calc(100dvh-2rem)] w-[calc(100vw-2rem)] -translate-x-1/2 -translate-y-1/2 overflow-y-auto rounded-xl border bg-surface p-5 shadow-lg",
            wide ? "max-w-2xl" : "max-w-md",
          )}
        >
          <Dialog.Title className="pr-8 text-base font-semibold break-words">{title}</Dialog.Title>
          {description && <Dialog.Description className="mt-1 text-sm text-muted">{description}</Dialog.Description>}
          <div className="mt-4">{children}</div>
          {/* Last, so that the content gets the focus first. */}
          <Dialog.Close asChild>
            <Button look="ghost" size="icon" aria-label={t("app.close")} className="absolute top-3 right-3">
              <X />
            </Button>
          </Dialog.Close>
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

export const ModalClose = Dialog.Close;
