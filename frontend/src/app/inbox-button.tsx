import { useQuery } from "@tanstack/react-query";
import { Bell as BellIcon } from "lucide-react";
import { lazy, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { unreadQuery } from "@/api/inbox";
import { Loading } from "@/ui/errors";
import { Popup } from "@/ui/popup";

const InboxList = lazy(() => import("./inbox-list"));
/** More than fits beside a bell is "99+". */
const MAX_COUNT_SHOWN = 99;

/** How much has happened that nobody has read; what it was loads when the bell is opened. */
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
