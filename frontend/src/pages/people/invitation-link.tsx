import { useTranslation } from "react-i18next";
import type { Invitation } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Callout } from "@/ui/badge";
import { CopyText } from "@/ui/copy-button";

/** A link that signs a person in once, to be copied. */
export function InvitationLink({ name, invitation }: { name: string; invitation: Invitation }) {
  const { t } = useTranslation();
  const link = `${location.origin}${invitation.path}`;
  return (
    <Callout tone="ok" role="status">
      <p>{t("people.linkOnce", { name, time: formatDateTime(invitation.expiresAt) })}</p>
      <CopyText text={link} className="mt-1" />
    </Callout>
  );
}
