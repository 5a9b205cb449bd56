import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { cx } from "@/lib/cx";
import type { TaskNames } from "@/lib/use-task-names";

interface HolderProps {
  /** The task's. */
  id: string;
  names: TaskNames | undefined;
  className?: string;
}

/** Leads to the task that holds something, by its name; one that the reader may not see has none. */
export function TaskLink({ id, names, className }: HolderProps) {
  const { t } = useTranslation();
  const name = names?.get(id);
  if (name === undefined) return <span className="text-muted">{names ? t("environments.otherTask") : "…"}</span>;
  return (
    <Link to={`/training/${id}`} className={cx("text-accent-ink hover:underline", className)}>
      {name}
    </Link>
  );
}
