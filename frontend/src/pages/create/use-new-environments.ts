import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { environmentTemplatesQuery } from "@/api/managed-environments";
import type { Environment } from "@/api/types";
import { type Draft, createsEnvironments, countNodes } from "./draft";

const MAX_ENVIRONMENTS = 1024;

/** Returns the environments that would be created, so that their totals can be shown. */
export function useNewEnvironments(draft: Draft): { environments: Environment[]; text: string | undefined } {
  const templates = useQuery({ ...environmentTemplatesQuery, enabled: createsEnvironments(draft) }).data;
  const template = templates?.find(({ id }) => id === draft.made.template);
  const count = Math.min(Math.max(Math.trunc(countNodes(draft)), 0), MAX_ENVIRONMENTS);
  const environments = useMemo(() => {
    if (!template) return [];
    const { name, kind, image, gpuType, gpuCount, emulated, cpuCores, memoryGb } = template;
    const zone = template.zone ?? { id: "", name: "" };
    const made = { kind, image, gpuType, gpuCount, emulated, cpuCores, memoryGb, zone, heldBy: null };
    return Array.from({ length: count }, (_, at) => ({ ...made, id: `new-${at}`, name }) as Environment);
  }, [template, count]);
  return { environments, text: template && `${count} × ${template.name}` };
}
