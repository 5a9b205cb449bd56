import { useMutation } from "@tanstack/react-query";
import { type ReactNode, type SubmitEvent, useEffect, useId, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import type { Problem } from "@/api/types";
import { Callout } from "./badge";
import { Button } from "./button";
import { ErrorMessage } from "./errors";
import { Field } from "./field";
import { Modal, ModalClose } from "./modal";

interface FormDialogProps<Answer> {
  trigger: ReactNode;
  title: string;
  description?: string | undefined;
  submit: string;
  wide?: boolean;
  /** Names of the fields; problems of others are shown above the form. */
  fields: readonly string[];
  /** Problems that are known before submitting. */
  known?: Problem[];
  /** Gets the texts of the form by name. If it rejects, the dialog stays open and shows the error. */
  onSubmit: (texts: Record<string, string>) => Promise<Answer>;
  /** Given where something else than a trigger opens it. */
  open?: boolean;
  onOpenChange?: (open: boolean) => void;
  /** Shown instead of the form after success; without it the dialog closes. */
  result?: (answer: Answer) => ReactNode;
  children: (problem: (field: string) => string | undefined) => ReactNode;
}

const NONE: Problem[] = [];

export function FormDialog<Answer>(props: FormDialogProps<Answer>) {
  const { trigger, title, description, submit, wide, fields, known = NONE, onSubmit, result, children } = props;
  const { t } = useTranslation();
  const [ownOpen, setOwnOpen] = useState(false);
  const open = props.open ?? ownOpen;
  const setOpen = (next: boolean) => {
    setOwnOpen(next);
    props.onOpenChange?.(next);
  };
  const send = useMutation({ mutationFn: onSubmit, onSuccess: () => setOpen(result !== undefined) });
  const refused = send.error instanceof ApiError ? send.error.problems : NONE;
  const problems = send.error ? refused : known;
  const belongs = (problem: Problem, field: string) => problem.field === field || problem.field.startsWith(`${field}.`);
  const elsewhere = problems.filter((problem) => !fields.some((field) => belongs(problem, field)));
  const onFormSubmit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const entries = [...new FormData(event.currentTarget)].map(([name, value]) => [name, (value as string).trim()]);
    send.mutate(Object.fromEntries(entries) as Record<string, string>);
  };
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (!send.error) return;
    const wrong = form.current?.querySelector<HTMLElement>('[role="alert"], [aria-invalid="true"]');
    wrong?.scrollIntoView({ block: "center" });
    wrong?.focus({ preventScroll: true });
  }, [send.error]);
  const onOpenChange = (next: boolean) => {
    setOpen(next);
    if (next) send.reset();
  };
  return (
    <Modal
      trigger={trigger}
      title={title}
      description={description}
      wide={wide}
      open={open}
      onOpenChange={onOpenChange}
    >
      {result && send.isSuccess ? (
        <div className="space-y-4">
          {result(send.data)}
          <div className="flex justify-end">
            <ModalClose asChild>
              <Button look="primary">{t("app.close")}</Button>
            </ModalClose>
          </div>
        </div>
      ) : (
        <form ref={form} onSubmit={onFormSubmit} className="space-y-4">
          {send.error && refused.length === 0 && (
            <Callout tone="bad" role="alert">
              <ErrorMessage error={send.error} />
            </Callout>
          )}
          {elsewhere.length > 0 && (
            <Callout tone="bad" role={send.error ? "alert" : "status"}>
              {elsewhere.map((problem, index) => (
                <p key={index}>{formatProblems(problem)}</p>
              ))}
            </Callout>
          )}
          {children((field) => {
            const own = problems.filter((problem) => belongs(problem, field)).map(formatProblems);
            return own.length > 0 ? own.join("\n") : undefined;
          })}
          <div className="flex justify-end gap-2">
            <ModalClose asChild>
              <Button>{t("app.cancel")}</Button>
            </ModalClose>
            <Button type="submit" look="primary" disabled={send.isPending}>
              {submit}
            </Button>
          </div>
        </form>
      )}
    </Modal>
  );
}

export function formatProblems({ message, hint }: Problem): string {
  return hint ? `${message} ${hint}` : message;
}

interface TextFieldProps {
  name: string;
  label: string;
  error: string | undefined;
  hint?: string;
  required?: boolean;
  maxLength?: number;
  placeholder?: string | undefined;
  defaultValue?: string | number | undefined;
  inputMode?: "numeric";
  /** Suggested values; others may be typed. */
  suggestions?: string[];
}

export function TextField({ label, error, hint, suggestions, ...input }: TextFieldProps) {
  const list = useId();
  return (
    <Field label={label} error={error} hint={hint}>
      {(wiring) => (
        <>
          <input {...wiring} {...input} {...(suggestions && { list })} autoComplete="off" className="control" />
          {suggestions && (
            <datalist id={list}>
              {suggestions.map((each) => (
                <option key={each} value={each} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Field>
  );
}

interface LinesFieldProps {
  name: string;
  label: string;
  error: string | undefined;
  hint: string;
  defaultValue: string;
}

/** A text field of several lines. */
export function LinesField({ label, error, hint, ...input }: LinesFieldProps) {
  return (
    <Field label={label} error={error} hint={hint}>
      {(wiring) => (
        <textarea {...wiring} {...input} rows={3} spellCheck={false} className="control h-auto py-2 font-mono" />
      )}
    </Field>
  );
}

/** Fields in a row where there is room. */
export function FormRow({ title, children }: { title: string; children: ReactNode }) {
  return (
    <fieldset>
      <legend className="mb-2 text-sm font-semibold text-muted">{title}</legend>
      <div className="grid items-start gap-4 sm:grid-cols-2">{children}</div>
    </fieldset>
  );
}
