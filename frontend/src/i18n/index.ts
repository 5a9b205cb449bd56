import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import type { Translation } from "./zh";

const DEFAULT = "zh";
const FALLBACK = "en";

/** A language's two letters; the platform's list of them is fermi.messages.languages. */
export type Language = string;

/** `xx.ts` exports `xx`: the file is all that a language needs here. */
const FILES = import.meta.glob<Record<string, Translation>>("./??.ts", { eager: true });
const CATALOGUES = new Map<Language, Translation>();
for (const [path, file] of Object.entries(FILES)) {
  const code = path.slice(2, 4);
  const catalogue = file[code];
  if (catalogue) CATALOGUES.set(code, catalogue);
}

/** Each in its own words, the default first. */
export const LANGUAGES = [...CATALOGUES]
  .map(([code, { app }]) => ({ code, ...app.own }))
  .sort((a, b) => Number(b.code === DEFAULT) - Number(a.code === DEFAULT));

const KEY = "fermi.language";

/** That of `tag`, be it "en" or "en-GB"; the default for a language that there is none of. */
export function known(tag: string | null | undefined): Language {
  const code = tag?.split("-")[0] ?? DEFAULT;
  return CATALOGUES.has(code) ? code : DEFAULT;
}

export function language(): Language {
  return known(i18next.language);
}

/** BCP 47, for Intl, for `lang` attributes and for the platform. */
export function locale(of = language()): string {
  return CATALOGUES.get(of)?.app.own.locale ?? of;
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
    fallbackLng: FALLBACK,
    resources: Object.fromEntries([...CATALOGUES].map(([code, translation]) => [code, { translation }])),
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
