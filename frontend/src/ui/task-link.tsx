import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { cx } from "@/lib/cx";
import type { TaskNames } from "@/lib/use-task-names";

interface HolderProps {
  /** The task's id. */
  id: string;
  names: TaskNames | undefined;
  className?: string;
}

/** A link to a task by name; without a link if the user may not see it. */
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
