import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { NAMES } from "./names";
import type { Part } from "./parts";
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
/** `usage.xx.ts` has what is said under `usage.…`; see `Parts`. */
const PARTS = import.meta.glob<{ default: object }>("./parts/*.??.ts");
const NAMED = new Map<Language, Name>(Object.entries(NAMES));

export const LANGUAGES = [...NAMED].map(([code, name]) => ({ code, ...name }));

const KEY = "fermi.language";

/** Of `tags` (`en`, `en-GB`) the first one that there are texts in; the default where there is none. */
export function matchLanguage(...tags: readonly (string | null | undefined)[]): Language {
  const codes = tags.map((tag) => tag?.split("-")[0]?.toLowerCase() ?? "");
  return codes.find((code) => NAMED.has(code)) ?? DEFAULT;
}

export function getLanguage(): Language {
  return matchLanguage(i18next.language);
}

/** BCP 47, for Intl, for `lang` attributes and for the platform. */
export function getLocale(of = getLanguage()): string {
  return NAMED.get(of)?.locale ?? of;
}

/** Requests that cannot carry a header (the event stream, a download) carry the cookie; pages that the platform makes
    itself, the operators', also show times in the zone that a cookie names. */
function publishLanguage(chosen: Language): void {
  document.documentElement.lang = getLocale(chosen);
  const kept = "path=/; max-age=31536000; samesite=lax";
  document.cookie = `django_language=${getLocale(chosen)}; ${kept}`;
  document.cookie = `fermi_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; ${kept}`;
}

const loaded = new Set<string>();
const parts = new Set<Part>();
/** Which language the texts are loaded for: the one that is shown, or is about to be. */
let next: Language = DEFAULT;

/** Without a part: what every page may say. */
async function load(chosen: Language, part?: Part): Promise<void> {
  const path = part ? `./parts/${part}.${chosen}.ts` : `./${chosen}.ts`;
  if (loaded.has(path)) return;
  const texts = part ? { [part]: (await PARTS[path]?.())?.default ?? {} } : (await FILES[path]?.())?.[chosen];
  i18next.addResourceBundle(chosen, "translation", texts ?? {}, true);
  loaded.add(path);
}

/** Chinese and English have every text; another language has English beside it. */
async function loadFor(chosen: Language, asked: Iterable<Part | undefined>): Promise<void> {
  const languages = chosen === DEFAULT ? [chosen] : [chosen, FALLBACK];
  const names = [...asked];
  await Promise.all(languages.flatMap((each) => names.map((part) => load(each, part))));
}

/** What is imported, once the parts of the texts that it says are there, too. */
export async function withTexts<T>(imported: Promise<T>, ...said: Part[]): Promise<T> {
  for (const part of said) parts.add(part);
  const [module] = await Promise.all([imported, loadFor(getLanguage(), said), loadFor(next, said)]);
  return module;
}

/** In the language that was chosen in this browser; before a choice, in one of those that the browser asks for. */
export async function startLanguage(): Promise<void> {
  const chosen = matchLanguage(localStorage.getItem(KEY), ...navigator.languages);
  void i18next.use(initReactI18next).init({
    lng: chosen,
    fallbackLng: FALLBACK,
    resources: {},
    interpolation: { escapeValue: false },
    initAsync: false,
  });
  publishLanguage(chosen);
  next = chosen;
  await loadFor(chosen, [undefined]);
}

export async function setLanguage(chosen: Language): Promise<void> {
  next = chosen;
  await loadFor(chosen, [undefined, ...parts]);
  localStorage.setItem(KEY, chosen);
  publishLanguage(chosen);
  await i18next.changeLanguage(chosen);
}
