import { useTranslation } from "react-i18next";
import { Callout } from "@/ui/badge";
import { CopyText } from "@/ui/copy-button";

/** The address of SCIM, to be entered at a directory. */
export const SCIM_URL = `${location.origin}/scim/v2`;

export function Flag({ name, label, hint, checked }: { name: string; label: string; hint: string; checked: boolean }) {
  return (
    <label className="flex items-start gap-2 text-sm">
      <input type="checkbox" name={name} className="mt-1" defaultChecked={checked} />
      <span>
        {label}
        <span className="block text-muted">{hint}</span>
      </span>
    </label>
  );
}

/** What to enter at a directory, with its token, which is shown this once. */
export function NewToken({ token }: { token: string }) {
  const { t } = useTranslation();
  return (
    <Callout tone="ok" role="status">
      <p className="font-medium">{t("directories.atDirectory")}</p>
      <p className="mt-2">{t("directories.address")}</p>
      <CopyText text={SCIM_URL} />
      <p className="mt-2">{t("directories.newToken")}</p>
      <CopyText text={token} />
      <p className="mt-2">{t("settings.tokenOnce")}</p>
    </Callout>
  );
}
