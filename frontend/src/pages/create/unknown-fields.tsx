import { X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import type { Draft, UnknownFields } from "./draft";

interface UnknownFieldListProps {
  rest: UnknownFields;
  onChange: (patch: Partial<Draft>) => void;
}

const PATHS = { config: "distributedConfig", entrypoint: "entrypoint" };

/** Fields of a cloned request that the form does not show. They are sent unless they are removed here. */
export function UnknownFieldList({ rest, onChange }: UnknownFieldListProps) {
  const { t } = useTranslation();
  const fields = (["request", "config", "entrypoint"] as const).flatMap((part) =>
    Object.entries(rest[part]).map(([name, value]) => ({ part, name, value })),
  );
  if (fields.length === 0) return null;
  const remove = (part: keyof UnknownFields, name: string) => {
    const left = Object.fromEntries(Object.entries(rest[part]).filter(([each]) => each !== name));
    onChange({ rest: { ...rest, [part]: left } });
  };
  return (
    <Card title={t("create.rest")}>
      <p className="mb-2 text-sm text-muted">{t("create.restHint")}</p>
      <ul className="space-y-1 text-sm">
        {fields.map(({ part, name, value }) => {
          const field = part === "request" ? name : `${PATHS[part]}.${name}`;
          return (
            <li key={field} className="flex items-center gap-2">
              <code className="min-w-0 break-all">
                {field}: {JSON.stringify(value)}
              </code>
              <Button
                look="ghost"
                size="icon"
                aria-label={t("create.restRemove", { field })}
                onClick={() => remove(part, name)}
              >
                <X />
              </Button>
            </li>
          );
        })}
      </ul>
    </Card>
  );
}
