import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { noticesQuery } from "@/api/session";
import { Note } from "@/ui/badge";

/** What whoever runs the platform has to know of it, and maintainers of their budgets, on every page; the platform
 * tells nobody else. */
export function OperatorNotices() {
  const { t } = useTranslation();
  const found = useQuery(noticesQuery).data?.findings ?? [];
  if (!found.length) return null;
  return (
    <section aria-label={t("app.operatorNotices")} className="mb-4">
      <Note tone="warn">
        <ul className="space-y-1">
          {found.map(({ message, hint }) => (
            <li key={message}>
              <strong className="font-medium">{message}</strong> {hint}
            </li>
          ))}
        </ul>
      </Note>
    </section>
  );
}
