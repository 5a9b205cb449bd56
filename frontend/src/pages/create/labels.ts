import type { TFunction } from "i18next";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";

/** Returns a label; a value that the console does not know is shown as it is. */
export function getLabel(t: TFunction, exists: (key: string) => boolean, key: string, fallback: string): string {
  return exists(key) ? t(key as "create.master") : fallback;
}

export function useLabels() {
  const { t, i18n } = useTranslation();
  return useMemo(() => {
    const under = (section: string) => (name: string) =>
      getLabel(t, (key) => i18n.exists(key), `${section}.${name}`, name);
    return {
      kind: under("environments.kindOf"),
      status: under("environments.statusOf"),
      strategy: under("create.strategyName"),
      hyperparameter: under("create.hyperparameter"),
      field: under("create"),
      choice: (name: string, value: string) => under(`create.choice.${name}`)(value),
      hint: (name: string) => getLabel(t, (key) => i18n.exists(key), `create.${name}Hint`, ""),
    };
  }, [t, i18n]);
}
