import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { Languages, Moon, Sun } from "lucide-react";
import { useTranslation } from "react-i18next";
import { type Language, LANGUAGES, setLanguage } from "@/i18n";
import { Button } from "@/ui/button";
import { setTheme, useTheme } from "./theme";

export function useChangeLanguage(): (to: Language) => Promise<void> {
  const client = useQueryClient();
  return async (to) => {
    await setLanguage(to);
    await refetchAll(client);
  };
}

/** Switches to the next language. It is labelled in that language. */
export function LanguageSwitch() {
  const change = useChangeLanguage();
  const { i18n } = useTranslation();
  const at = LANGUAGES.findIndex(({ code }) => code === i18n.language);
  const next = LANGUAGES[(at + 1) % LANGUAGES.length];
  if (!next) return null;
  return (
    <Button look="ghost" size="sm" lang={next.code} aria-label={next.switchTo} onClick={() => change(next.code)}>
      <Languages />
      {next.short}
    </Button>
  );
}

/**
 * Requests everything again, as the platform's texts are in the old language. Events are only ever added to, so they
 * are dropped.
 */
async function refetchAll(client: QueryClient): Promise<void> {
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
