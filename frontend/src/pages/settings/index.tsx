import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { meQuery } from "@/api/session";
import type { Me } from "@/api/types";
import { useShortcuts } from "@/app/use-shortcuts";
import { useChangeLanguage } from "@/app/preferences";
import { setTheme, type Theme, useTheme } from "@/app/theme";
import { getLanguage, LANGUAGES } from "@/i18n";
import { ButtonAnchor, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { Field } from "@/ui/field";
import { Page } from "@/ui/page";
import { DefinitionList } from "@/ui/table";
import { BrowserSessions } from "./browser-sessions";
import { Programs } from "./programs";
import { Projects } from "./projects";
import { SecondFactor } from "./second-factor";
import { Tokens } from "./tokens";

export function Component() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  if (!me) return null; // Shell has loaded the user already
  return (
    <Page title={t("settings.title")}>
      <div className="grid items-start gap-4 lg:grid-cols-[22rem_minmax(0,1fr)]">
        <Profile me={me} />
        <div className="min-w-0 space-y-4">
          <Tokens me={me} />
          <Programs me={me} />
          <BrowserSessions />
          <SecondFactor />
          <Projects me={me} />
        </div>
      </div>
    </Page>
  );
}

function Profile({ me }: { me: Me }) {
  const { t } = useTranslation();
  const theme = useTheme();
  const changeLanguage = useChangeLanguage();
  const [shortcuts, setShortcuts] = useShortcuts();
  return (
    <Card title={t("settings.profile")}>
      <DefinitionList
        facts={[
          [t("settings.username"), me.username],
          [t("settings.email"), me.email || "–"],
          [t("settings.role"), t(me.isAdministrator ? "settings.administrator" : "settings.user")],
        ]}
      />
      <div className="mt-4 space-y-4">
        <Field label={t("settings.language")}>
          {(wiring) => (
            <select
              {...wiring}
              className="control"
              value={getLanguage()}
              onChange={({ target }) => void changeLanguage(target.value)}
            >
              {LANGUAGES.map(({ code, name }) => (
                <option key={code} value={code} lang={code}>
                  {name}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label={t("settings.theme")}>
          {(wiring) => (
            <select
              {...wiring}
              className="control"
              value={theme}
              onChange={({ target }) => setTheme(target.value as Theme)}
            >
              <option value="light">{t("settings.light")}</option>
              <option value="dark">{t("settings.dark")}</option>
            </select>
          )}
        </Field>
        <label className="flex items-start gap-2 text-sm">
          <input
            type="checkbox"
            className="mt-1"
            checked={shortcuts}
            onChange={({ target }) => setShortcuts(target.checked)}
          />
          <span>
            {t("settings.shortcuts")}
            <span className="block text-muted">{t("settings.shortcutsHint")}</span>
          </span>
        </label>
        <ButtonLink to="/settings/notices" className="w-full justify-center">
          {t("app.noticeSettings")}
        </ButtonLink>
        {me.isAdministrator && (
          <>
            <ButtonLink to="/administration/sign-in" className="w-full justify-center">
              {t("app.identityProviders")}
            </ButtonLink>
            <ButtonAnchor href="/admin/" className="w-full justify-center">
              {t("settings.operators")}
            </ButtonAnchor>
          </>
        )}
      </div>
    </Card>
  );
}
