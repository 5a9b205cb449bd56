import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { NAMES } from "./names";
import type { Translation } from "./zh";

const DEFAULT = "zh";
const FALLBACK = "en";

/** A language's two letters; the platform's list of them is fermi.messages.languages. */
export type Language = string;

interface Name {
  locale: string;
  short: string;
  name: string;
  switchTo: string;
}

/** `xx.ts` exports `xx`. Whoever reads one language loads that one. */
const FILES = import.meta.glob<Record<string, Translation>>("./??.ts");
const NAMED = new Map<Language, Name>(Object.entries(NAMES));

export const LANGUAGES = [...NAMED].map(([code, name]) => ({ code, ...name }));

const KEY = "fermi.language";

/** That of `tag`, be it "en" or "en-GB"; the default for a language that there is none of. */
export function known(tag: string | null | undefined): Language {
  const code = tag?.split("-")[0] ?? DEFAULT;
  return NAMED.has(code) ? code : DEFAULT;
}

export function language(): Language {
  return known(i18next.language);
}

/** BCP 47, for Intl, for `lang` attributes and for the platform. */
export function locale(of = language()): string {
  return NAMED.get(of)?.locale ?? of;
}

/** Requests that cannot carry a header (the event stream, a download) carry the cookie. */
function publish(chosen: Language): void {
  document.documentElement.lang = locale(chosen);
  document.cookie = `django_language=${locale(chosen)}; path=/; max-age=31536000; samesite=lax`;
}

async function load(chosen: Language): Promise<void> {
  if (i18next.hasResourceBundle(chosen, "translation")) return;
  const file = await FILES[`./${chosen}.ts`]?.();
  i18next.addResourceBundle(chosen, "translation", file?.[chosen] ?? {});
}

/** Chinese and English have every text; another language has English beside it. */
async function loadFor(chosen: Language): Promise<void> {
  await Promise.all([load(chosen), ...(chosen === DEFAULT ? [] : [load(FALLBACK)])]);
}

export async function startLanguage(): Promise<void> {
  const chosen = known(localStorage.getItem(KEY));
  void i18next.use(initReactI18next).init({
    lng: chosen,
    fallbackLng: FALLBACK,
    resources: {},
    interpolation: { escapeValue: false },
    initAsync: false,
  });
  publish(chosen);
  await loadFor(chosen);
}

export async function setLanguage(chosen: Language): Promise<void> {
  await loadFor(chosen);
  localStorage.setItem(KEY, chosen);
  publish(chosen);
  await i18next.changeLanguage(chosen);
}
