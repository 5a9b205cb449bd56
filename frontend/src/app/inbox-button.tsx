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

/** The number of unread entries, which lies over the icon and needs no width; opening it loads the list. */
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
              className="absolute top-0 left-5 rounded-full bg-bad px-1 text-xs text-white tabular-nums"
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
