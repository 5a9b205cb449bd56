import type { EnvironmentTemplate, FormBody } from "@/api/managed-environments";
import { parseNumber } from "@/lib/parse-input";

const NUMBERS = ["gpuCount", "cpuCores", "memoryGb", "sharedMemoryGb", "diskGb"] as const;
const PLACES = ["clusterId", "zone", "host"] as const;

/** The dialog's fields, as the API calls them. */
export const FIELDS = ["templateId", "name", "projectId", ...PLACES, "gpuType", ...NUMBERS, "idleStopMinutes"] as const;

/** What is asked for: the template, and what differs from it. What is no number is sent as it was typed. */
export function buildCreateBody(texts: Record<string, string>, template: EnvironmentTemplate): FormBody {
  const differing = NUMBERS.filter((name) => {
    const text = texts[name] ?? "";
    return text !== "" && text !== String(template[name]);
  });
  const idle = texts.idleStopMinutes ?? "";
  const places = PLACES.filter((name) => texts[name]);
  return {
    templateId: template.id,
    name: texts.name ?? "",
    projectId: texts.projectId ?? "",
    ...Object.fromEntries(places.map((name) => [name, texts[name]])),
    ...(texts.gpuType !== undefined && texts.gpuType !== template.gpuType && { gpuType: texts.gpuType }),
    ...Object.fromEntries(differing.map((name) => [name, parseNumber(texts[name] ?? "")])),
    ...(idle !== String(template.idleStopMinutes ?? "") && { idleStopMinutes: idle === "" ? null : parseNumber(idle) }),
  };
}
