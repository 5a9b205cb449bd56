import type { Parts } from "./parts";
import type { zh } from "./zh";

declare module "i18next" {
  interface CustomTypeOptions {
    defaultNS: "translation";
    resources: { translation: typeof zh & Parts };
  }
}
