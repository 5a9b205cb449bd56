import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { en } from "./en";
import { zh } from "./zh";

export type Language = "zh" | "en";

const KEY = "fermi.language";
const LOCALE = { zh: "zh-CN", en: "en" } as const;
const DJANGO = { zh: "zh-hans", en: "en" } as const;

export function language(): Language {
  return i18next.language === "en" ? "en" : "zh";
}

/** BCP 47, for Intl and for `lang` attributes. */
export function locale(): string {
  return LOCALE[language()];
}

export function acceptLanguage(): string {
  return locale();
}

/** Requests that cannot carry a header (the event stream, a download) carry the cookie. */
function publish(chosen: Language): void {
  document.documentElement.lang = LOCALE[chosen];
  document.cookie = `django_language=${DJANGO[chosen]}; path=/; max-age=31536000; samesite=lax`;
}

export function startLanguage(): void {
  const chosen: Language = localStorage.getItem(KEY) === "en" ? "en" : "zh";
  void i18next.use(initReactI18next).init({
    lng: chosen,
    fallbackLng: "zh",
    resources: { zh: { translation: zh }, en: { translation: en } },
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
