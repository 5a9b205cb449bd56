import { useQuery } from "@tanstack/react-query";
import { Bell as BellIcon } from "lucide-react";
import { lazy, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { unreadQuery } from "@/api/inbox";
import { Loading } from "@/ui/errors";
import { Popup } from "@/ui/popup";

const InboxList = lazy(() => import("./inbox-list"));
/** A larger number is shown as "99+". */
const MAX_COUNT_SHOWN = 99;

/** The number of unread entries; opening it loads the list. */
export function InboxButton() {
  const { t } = useTranslation();
  const unread = useQuery(unreadQuery).data ?? 0;
  return (
    <Popup
      wide
      label={
        <>
          <span className="sr-only">{t("bell.open", { count: unread })}</span>
          {unread > 0 && (
            <span
              aria-hidden
              className="rounded-full bg-bad px-1.5 text-xs text-white tabular-nums max-sm:absolute max-sm:top-0 max-sm:left-5 max-sm:px-1"
            >
              {unread > MAX_COUNT_SHOWN ? `${MAX_COUNT_SHOWN}+` : unread}
            </span>
          )}
        </>
      }
      icon={<BellIcon aria-hidden />}
    >
      <Suspense fallback={<Loading />}>
        <InboxList />
      </Suspense>
    </Popup>
  );
}
