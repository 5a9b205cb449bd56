import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { noticesQuery } from "@/api/session";
import { MessageList } from "@/ui/message-list";

const SHOWN_COLLAPSED = 2;

/** Notices for operators, and for maintainers about budgets, on every page. */
export function OperatorNotices() {
  const { t } = useTranslation();
  const found = useQuery(noticesQuery).data?.findings ?? [];
  if (!found.length) return null;
  return (
    <section aria-label={t("app.operatorNotices")} className="mb-4">
      <MessageList
        most={SHOWN_COLLAPSED}
        notes={found.map(({ level, message, hint }) => ({
          id: message,
          level,
          message: <strong className="font-medium">{message}</strong>,
          hint,
        }))}
      />
    </section>
  );
}
