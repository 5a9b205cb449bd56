import { useMutation } from "@tanstack/react-query";
import { Dialog } from "radix-ui";
import { type ReactNode, type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import { Note } from "./badge";
import { Button } from "./button";
import { describe } from "./failure";
import { Field } from "./field";

interface FormDialogProps {
  trigger: ReactNode;
  title: string;
  description?: string;
  submit: string;
  /** Names of the fields below; problems of others are told above the form. */
  fields: readonly string[];
  /** The texts of the form by name; rejects with what is wrong, and the dialog stays. */
  onSubmit: (texts: Record<string, string>) => Promise<unknown>;
  children: (problem: (field: string) => string | undefined) => ReactNode;
}

export function FormDialog({ trigger, title, description, submit, fields, onSubmit, children }: FormDialogProps) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const send = useMutation({ mutationFn: onSubmit, onSuccess: () => setOpen(false) });
  const problems = send.error instanceof ApiError ? send.error.problems : [];
  const placed = problems.some(({ field }) => fields.includes(field));
  const onFormSubmit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const entries = [...new FormData(event.currentTarget)].map(([name, value]) => [name, (value as string).trim()]);
    send.mutate(Object.fromEntries(entries) as Record<string, string>);
  };
  return (
    <Dialog.Root
      open={open}
      onOpenChange={(next) => {
        setOpen(next);
        if (next) send.reset();
      }}
    >
      <Dialog.Trigger asChild>{trigger}</Dialog.Trigger>
      <Dialog.Portal>
        <Dialog.Overlay className="fixed inset-0 z-40 bg-black/50" />
        <Dialog.Content
          {...(!description && { "aria-describedby": undefined })}
          className="fixed top-1/2 left-1/2 z-50 max-h-[calc(100dvh-2rem)] w-[calc(100vw-2rem)] max-w-md -translate-x-1/2 -translate-y-1/2 overflow-y-auto rounded-xl border bg-surface p-5 shadow-lg"
        >
          <Dialog.Title className="text-base font-semibold">{title}</Dialog.Title>
          {description && (
            <Dialog.Description className="mt-1 text-sm text-muted">{description}</Dialog.Description>
          )}
          <form onSubmit={onFormSubmit} className="mt-4 space-y-4">
            {send.error && !placed && (
              <Note tone="bad" role="alert">
                {describe(t, send.error)}
              </Note>
            )}
            {children((field) => problems.find((problem) => problem.field === field)?.message)}
            <div className="flex justify-end gap-2">
              <Dialog.Close asChild>
                <Button>{t("app.cancel")}</Button>
              </Dialog.Close>
              <Button type="submit" look="primary" disabled={send.isPending}>
                {submit}
              </Button>
            </div>
          </form>
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

interface TextFieldProps {
  name: string;
  label: string;
  error: string | undefined;
  hint?: string;
  required?: boolean;
  placeholder?: string;
}

export function TextField({ name, label, error, hint, required, placeholder }: TextFieldProps) {
  return (
    <Field label={label} error={error} hint={hint}>
      {(wiring) => (
        <input {...wiring} name={name} required={required} placeholder={placeholder} className="control" />
      )}
    </Field>
  );
}
