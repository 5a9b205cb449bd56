import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { NAMES } from "./names";
import type { PageTranslation } from "./pages/zh";
import type { Translation } from "./zh";

const DEFAULT = "zh";
const FALLBACK = "en";

/** A language's two letters. The platform's list of languages is in fermi.messages.languages. */
export type Language = string;

interface LanguageName {
  locale: string;
  short: string;
  name: string;
  switchTo: string;
}

/** `xx.ts` exports `xx`: the texts of a first visit. Only the texts of the languages in use are loaded. */
const FIRST_TEXTS = import.meta.glob<Record<string, Translation>>("./??.ts");
/** `pages/xx.ts` exports `xx`: all other texts, which load with the first page that uses one of them. */
const PAGE_TEXTS = import.meta.glob<Record<string, PageTranslation>>("./pages/??.ts");
const LANGUAGE_NAMES = new Map<Language, LanguageName>(Object.entries(NAMES));

export const LANGUAGES = [...LANGUAGE_NAMES].map(([code, name]) => ({ code, ...name }));

const KEY = "fermi.language";

/** Returns the language of the first of `tags` (`en`, `en-GB`) that there are texts for, or else the default. */
export function matchLanguage(...tags: readonly (string | null | undefined)[]): Language {
  const codes = tags.map((tag) => tag?.split("-")[0]?.toLowerCase() ?? "");
  return codes.find((code) => LANGUAGE_NAMES.has(code)) ?? DEFAULT;
}

export function getLanguage(): Language {
  return matchLanguage(i18next.language);
}

/** Returns the BCP 47 tag of a language, for Intl, `lang` attributes and the platform. */
export function getLocale(language = getLanguage()): string {
  return LANGUAGE_NAMES.get(language)?.locale ?? language;
}

/** Sets the cookies that tell the platform the language and the time zone: requests without headers of their own (event
    streams, downloads) and the pages that Django renders depend on them. */
function publishLanguage(language: Language): void {
  document.documentElement.lang = getLocale(language);
  const attributes = "path=/; max-age=31536000; samesite=lax";
  document.cookie = `django_language=${getLocale(language)}; ${attributes}`;
  document.cookie = `fermi_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; ${attributes}`;
}

const loaded = new Set<string>();
/** Whether a page has asked for the texts of pages; a language that is chosen later loads them too. */
let usesPageTexts = false;
/** The language that is shown, or that is about to be shown while its texts load. */
let nextLanguage: Language = DEFAULT;

/** Loads the texts of a language; those of pages alone where `pages`. English is loaded beside a language that may lack
    texts: all but the default. */
async function loadTexts(language: Language, pages: boolean): Promise<void> {
  const files = pages ? PAGE_TEXTS : FIRST_TEXTS;
  const languages = language === DEFAULT ? [language] : [language, FALLBACK];
  await Promise.all(
    languages.map(async (each) => {
      const path = pages ? `./pages/${each}.ts` : `./${each}.ts`;
      if (loaded.has(path)) return;
      i18next.addResourceBundle(each, "translation", (await files[path]?.())?.[each] ?? {}, true);
      loaded.add(path);
    }),
  );
}

/** Resolves to an imported module once the texts of pages are loaded, too. */
export async function withPageTexts<T>(imported: Promise<T>): Promise<T> {
  usesPageTexts = true;
  const [module] = await Promise.all([imported, loadTexts(getLanguage(), true), loadTexts(nextLanguage, true)]);
  return module;
}

/** Starts in the language that was chosen in this browser, or else in the first that the browser accepts. */
export async function startLanguage(): Promise<void> {
  const language = matchLanguage(localStorage.getItem(KEY), ...navigator.languages);
  void i18next.use(initReactI18next).init({
    lng: language,
    fallbackLng: FALLBACK,
    resources: {},
    interpolation: { escapeValue: false },
    initAsync: false,
  });
  publishLanguage(language);
  nextLanguage = language;
  await loadTexts(language, false);
}

export async function setLanguage(language: Language): Promise<void> {
  nextLanguage = language;
  await Promise.all([loadTexts(language, false), usesPageTexts ? loadTexts(language, true) : undefined]);
  localStorage.setItem(KEY, language);
  publishLanguage(language);
  await i18next.changeLanguage(language);
}
