import { useTranslation } from "react-i18next";
import type { RunsIn } from "@/api/types";
import { Badge } from "./badge";

interface Place {
  name: string;
  runsIn: RunsIn | null;
}

/** Where the ranks of each environment run, and why. Environments with the same answer are grouped. */
export function RankPlacement({ places }: { places: Place[] }) {
  const { t } = useTranslation();
  const groups = groupByPlacement(places);
  if (groups.length === 0) return null;
  return (
    <div className="max-h-72 overflow-y-auto" role="group" aria-label={t("runsIn.each")} tabIndex={0}>
      <ul className="space-y-2 text-sm">
        {groups.map(({ way, message, names }) => (
          <li key={`${way} ${message}`}>
            <p className="flex flex-wrap items-center gap-x-2 gap-y-1">
              <span className="min-w-0 font-medium break-words">{names.join(", ")}</span>
              <Badge tone={way === "inside" ? "accent" : "idle"}>{t(`runsIn.${way}`)}</Badge>
            </p>
            <p className="break-words text-muted">{message}</p>
          </li>
        ))}
      </ul>
    </div>
  );
}

function groupByPlacement(places: Place[]) {
  const groups = new Map<string, { way: RunsIn["way"]; message: string; names: string[] }>();
  for (const { name, runsIn } of places) {
    if (!runsIn) continue;
    const { way, message } = runsIn;
    const key = `${way} ${message}`;
    const group = groups.get(key) ?? { way, message, names: [] };
    group.names.push(name);
    groups.set(key, group);
  }
  return [...groups.values()];
}
