import type { zh as pages } from "./pages/zh";
import type { zh } from "./zh";

declare module "i18next" {
  interface CustomTypeOptions {
    defaultNS: "translation";
    resources: { translation: typeof zh & typeof pages };
  }
}
