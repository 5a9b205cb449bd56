import { useTranslation } from "react-i18next";
import { isMaintainer } from "@/api/session";
import type { Me, NoticeChannel } from "@/api/types";
import { Field } from "@/ui/field";

type Owned = Pick<NoticeChannel, "scope" | "projectId">;

/** Formats an owner as one text, for forms and comparison. */
export function formatOwner({ scope, projectId }: Owned): string {
  return scope === "project" ? `project:${projectId}` : scope;
}

export function parseOwner(owner: string): Owned {
  const [scope, projectId] = owner.split(":");
  return projectId
    ? { scope: "project", projectId }
    : { scope: scope === "platform" ? "platform" : "me", projectId: null };
}

export function canChange(me: Me, { scope, projectId }: Owned): boolean {
  return scope === "me" || isMaintainer(me, projectId);
}

export function useOwnerName(me: Me): (owned: Owned) => string {
  const { t } = useTranslation();
  return ({ scope, projectId }) => {
    if (scope !== "project") return t(`notices.ownerOf.${scope}`);
    const name = me.projects.find(({ id }) => id === projectId)?.name ?? projectId ?? "";
    return t("notices.ownerOf.project", { name });
  };
}

interface OwnerFieldProps {
  me: Me;
  value: string;
  onChange: (owner: string) => void;
}

/** Selects the owner, among those that the user may choose. */
export function OwnerField({ me, value, onChange }: OwnerFieldProps) {
  const { t } = useTranslation();
  const nameOf = useOwnerName(me);
  const projects = me.projects.filter(({ id }) => isMaintainer(me, id)).map(({ id }) => `project:${id}`);
  const owners = ["me", ...projects, ...(me.isAdministrator ? ["platform"] : [])];
  return (
    <Field label={t("notices.owner")}>
      {(wiring) => (
        <select {...wiring} className="control" value={value} onChange={({ target }) => onChange(target.value)}>
          {owners.map((owner) => (
            <option key={owner} value={owner}>
              {nameOf(parseOwner(owner))}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
