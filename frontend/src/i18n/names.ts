/** How each language calls itself, the default first. Its texts are in `xx.ts`, which only its readers load. */
export const NAMES = {
  zh: { locale: "zh-CN", short: "中文", name: "简体中文", switchTo: "切换到中文" },
  en: { locale: "en", short: "English", name: "English", switchTo: "Switch to English" },
};
