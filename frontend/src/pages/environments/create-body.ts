import type { EnvironmentTemplate, FormBody } from "@/api/managed-environments";
import { parseNumber } from "@/lib/parse-input";

const NUMBERS = ["gpuCount", "cpuCores", "memoryGb", "sharedMemoryGb", "diskGb"] as const;
const PLACES = ["clusterId", "zone", "host"] as const;

/** The dialog's fields, by the API's names. */
export const FIELDS = ["templateId", "name", "projectId", ...PLACES, "gpuType", ...NUMBERS, "idleStopMinutes"] as const;

/** Returns the request: the template, and what differs from it. Invalid numbers are sent as typed. */
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
