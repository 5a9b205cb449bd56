import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { en } from "./en";
import { zh } from "./zh";

/** The platform's languages (LANGUAGES of fermi.messages), its default first. */
const CATALOGUES = { zh, en };

export type Language = keyof typeof CATALOGUES;

/** Each in its own words. */
export const LANGUAGES = Object.entries(CATALOGUES).map(([code, { app }]) => ({ code: code as Language, ...app.own }));

const KEY = "fermi.language";

/** That of `tag`, be it "en" or "en-GB"; the default for a language that there is none of. */
export function known(tag: string | null | undefined): Language {
  const found = LANGUAGES.find(({ code }) => code === tag?.split("-")[0]);
  return found?.code ?? "zh";
}

export function language(): Language {
  return known(i18next.language);
}

/** BCP 47, for Intl, for `lang` attributes and for the platform. */
export function locale(of = language()): string {
  return CATALOGUES[of].app.own.locale;
}

/** Requests that cannot carry a header (the event stream, a download) carry the cookie. */
function publish(chosen: Language): void {
  document.documentElement.lang = locale(chosen);
  document.cookie = `django_language=${locale(chosen)}; path=/; max-age=31536000; samesite=lax`;
}

export function startLanguage(): void {
  const chosen = known(localStorage.getItem(KEY));
  void i18next.use(initReactI18next).init({
    lng: chosen,
    fallbackLng: "en",
    resources: Object.fromEntries(Object.entries(CATALOGUES).map(([code, translation]) => [code, { translation }])),
    interpolation: { escapeValue: false },
    initAsync: false,
  });
  publish(chosen);
}

export async function setLanguage(chosen: Language): Promise<void> {
  localStorage.setItem(KEY, chosen);
  publish(chosen);
  await i18next.changeLanguage(chosen);
}
