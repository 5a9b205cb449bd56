import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { meQuery } from "@/api/session";
import { Page } from "@/ui/page";
import { Channels } from "./channels";
import { Rules } from "./rules";

export function Component() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  if (!me) return null; // Shell has loaded the user already
  return (
    <Page title={t("app.noticeSettings")}>
      <p className="mb-4 max-w-3xl text-sm text-muted">{t("notices.hint")}</p>
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Channels me={me} />
        <Rules me={me} />
      </div>
    </Page>
  );
}
