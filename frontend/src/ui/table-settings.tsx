import { Columns3, Rows2, Rows4 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { useCompactRows } from "@/lib/use-table-settings";
import { Button } from "./button";
import { Popup } from "./popup";
import { SavedViews } from "./saved-views";

interface ListLookProps {
  /** The list's name in saved views. */
  section: string;
  /** Columns that can be hidden. */
  columns?: { id: string; label: string }[];
  hidden?: string[];
  onHide?: (id: string) => void;
}

/** Settings of a list: saved views, columns, and row height. */
export function TableSettings({ section, columns = [], hidden = [], onHide }: ListLookProps) {
  const { t } = useTranslation();
  const [dense, setDense] = useCompactRows();
  return (
    <div className="hidden items-center gap-1 md:flex">
      <SavedViews section={section} />
      {columns.length > 0 && (
        <Popup label={t("list.columns")} icon={<Columns3 aria-hidden />}>
          <ul>
            {columns.map(({ id, label }) => (
              <li key={id}>
                <label className="flex items-center gap-2 rounded px-2 py-1.5 text-sm hover:bg-sunken">
                  <input type="checkbox" checked={!hidden.includes(id)} onChange={() => onHide?.(id)} />
                  {label}
                </label>
              </li>
            ))}
          </ul>
        </Popup>
      )}
      <Button
        look="ghost"
        size="icon"
        aria-label={t("list.dense")}
        title={t("list.dense")}
        aria-pressed={dense}
        onClick={() => setDense(!dense)}
      >
        {dense ? <Rows2 /> : <Rows4 />}
      </Button>
    </div>
  );
}
