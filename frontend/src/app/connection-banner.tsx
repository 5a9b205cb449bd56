import { CloudOff } from "lucide-react";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { useConnectionStatus, startConnectionChecks } from "@/api/connection-status";
import { formatTime } from "@/lib/format";

/** Shown on every page while the platform does not respond. */
export function ConnectionBanner() {
  const { t } = useTranslation();
  useEffect(startConnectionChecks, []);
  const { contact, since } = useConnectionStatus();
  return (
    <div role="status">
      {contact !== "live" && (
        <p className="flex items-center justify-center gap-2 border-b border-warn-line bg-warn-soft px-4 py-2 text-sm text-warn-ink">
          <CloudOff aria-hidden className="size-4 shrink-0" />
          {t(`app.contact.${contact}`, { time: formatTime(new Date(since).toISOString()) })}
        </p>
      )}
    </div>
  );
}
