/** Each language's name for itself; the first is the default. */
export const NAMES = {
  zh: { locale: "zh-CN", short: "中文", name: "简体中文", switchTo: "切换到中文" },
  en: { locale: "en", short: "English", name: "English", switchTo: "Switch to English" },
};
