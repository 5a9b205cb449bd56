import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { meQuery } from "@/api/session";
import { Field } from "@/ui/field";

/** Returns the projects in which the user may add workers, join tokens and groups: more than a viewer. */
export function useWritableProjects() {
  return useQuery(meQuery).data?.projects.filter(({ role }) => role !== "viewer") ?? [];
}

/** Selects `projectId`; hidden if there is only one project. */
export function ProjectField({ error }: { error?: ReactNode }) {
  const { t } = useTranslation();
  const projects = useWritableProjects();
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
