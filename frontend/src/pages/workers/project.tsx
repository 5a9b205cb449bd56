import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { meQuery } from "@/api/session";
import { Field } from "@/ui/field";

/** `projectId` of a form; nothing to those who have but one project. */
export function ProjectField({ error }: { error?: ReactNode }) {
  const { t } = useTranslation();
  const projects = useQuery(meQuery).data?.projects ?? [];
  if (projects.length <= 1) return null;
  return (
    <Field label={t("workers.project")} error={error}>
      {(wiring) => (
        <select {...wiring} name="projectId" className="control">
          {projects.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
