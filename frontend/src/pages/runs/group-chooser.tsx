import { Group } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Popup } from "@/ui/popup";
import type { ColumnInfo } from "./columns";
import { MAX_GROUPS } from "./table-state";

/** Columns of which each run has its own value, or several. */
const UNGROUPED = ["name", "id", "note", "created", "started", "ended", "age", "tag", "environment"];

interface GroupChooserProps {
  /** Columns that can be grouped by. */
  columns: ColumnInfo[];
  groupBy: string[];
  onChange: (names: string[]) => void;
}

/** Chooses up to three columns by whose values the runs are grouped. */
export function GroupChooser({ columns, groupBy, onChange }: GroupChooserProps) {
  const { t } = useTranslation();
  const levels = [...groupBy, ""].slice(0, MAX_GROUPS);
  const options = columns.filter(({ name, kind }) => kind !== "time" && !UNGROUPED.includes(name));
  const set = (index: number, name: string) =>
    onChange([...new Set([...groupBy.slice(0, index), name, ...groupBy.slice(index + 1)])].filter(Boolean));
  return (
    <Popup
      icon={<Group aria-hidden />}
      label={
        <>
          {t("runs.group")}
          {groupBy.length > 0 && (
            <span className="rounded-full bg-accent-soft px-1.5 text-xs text-accent-ink tabular-nums">
              {groupBy.length}
            </span>
          )}
        </>
      }
    >
      <div className="space-y-2 p-1">
        {levels.map((current, index) => (
          <label key={index} className="block space-y-1 text-sm">
            <span className="text-muted">{t(index === 0 ? "runs.groupBy" : "runs.groupThen")}</span>
            <select className="control" value={current} onChange={({ target }) => set(index, target.value)}>
              <option value="">{t("runs.noGroup")}</option>
              {options
                .filter(({ name }) => name === current || !groupBy.includes(name))
                .map(({ name, label }) => (
                  <option key={name} value={name}>
                    {label}
                  </option>
                ))}
            </select>
          </label>
        ))}
      </div>
    </Popup>
  );
}
