import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { Languages, Moon, Sun } from "lucide-react";
import { useTranslation } from "react-i18next";
import { language, type Language, setLanguage } from "@/i18n";
import { Button } from "@/ui/button";
import { setTheme, useTheme } from "./theme";

export function useChangeLanguage(): (to: Language) => Promise<void> {
  const client = useQueryClient();
  return async (to) => {
    await setLanguage(to);
    await askAgain(client);
  };
}

export function LanguageSwitch() {
  const { t } = useTranslation();
  const change = useChangeLanguage();
  const other = language() === "zh" ? "en" : "zh";
  return (
    <Button look="ghost" size="sm" lang={other} aria-label={t("app.switchLanguage")} onClick={() => change(other)}>
      <Languages />
      {t("app.language")}
    </Button>
  );
}

/** What the platform said is in the old language. Events are only ever added to, so those start anew. */
async function askAgain(client: QueryClient): Promise<void> {
  await client.resetQueries({ predicate: ({ queryKey }) => queryKey.includes("events") });
  await client.invalidateQueries();
}

export function ThemeSwitch() {
  const { t } = useTranslation();
  const theme = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return (
    <Button look="ghost" size="icon" aria-label={t(`app.${other}`)} onClick={() => setTheme(other)}>
      {theme === "dark" ? <Sun /> : <Moon />}
    </Button>
  );
}
