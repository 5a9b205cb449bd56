import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { LANGUAGES } from "@/i18n";
import type { Command } from "../commands";
import { OTHER_PAGES, NAV_PAGES } from "../pages";
import { useChangeLanguage } from "../preferences";
import { setTheme, useTheme } from "../theme";

/** Returns the commands that every page has. */
export function useGlobalCommands(onHelp: () => void): { pages: Command[]; actions: Command[] } {
  const { t, i18n } = useTranslation();
  const navigate = useNavigate();
  const changeLanguage = useChangeLanguage();
  const other = useTheme() === "dark" ? "light" : "dark";
  const pages = [...NAV_PAGES, ...OTHER_PAGES].map(({ to, label, key }) => ({
    id: to,
    label: t(label),
    also: to,
    ...(key && { keys: `g ${key}` }),
    run: () => navigate(to),
  }));
  const languages = LANGUAGES.filter(({ code }) => code !== i18n.language);
  const actions = [
    { id: "create", label: t("tasks.create"), also: "create", keys: "c", run: () => navigate("/training/create") },
    ...languages.map(({ code, switchTo }) => ({
      id: `language ${code}`,
      label: switchTo,
      also: "language",
      run: () => changeLanguage(code),
    })),
    { id: "theme", label: t(`app.${other}`), also: "theme", run: () => setTheme(other) },
    { id: "help", label: t("palette.help"), also: "help", keys: "?", run: onHelp },
  ];
  return { pages, actions };
}
