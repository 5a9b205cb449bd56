import { Plus, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Collapsible } from "@/ui/collapsible";
import { Field } from "@/ui/field";
import { formatValue } from "@/ui/template-parameters/values";
import { type DraftParameter, findPlaceholders, type Json, type RequestField } from "./editor";

interface RequestFieldsProps {
  fields: RequestField[];
  parameters: DraftParameter[];
  onAdd: (field: RequestField) => void;
  onRemove: (parameter: DraftParameter) => void;
}

/** The fields of a request; each can become a parameter, or a fixed value again. */
export function RequestFields({ fields, parameters, onAdd, onRemove }: RequestFieldsProps) {
  const { t } = useTranslation();
  const [search, setSearch] = useState("");
  const text = search.toLowerCase();
  const found = fields.filter(({ path, value }) => `${path} ${formatValue(value)}`.toLowerCase().includes(text));
  return (
    <>
      <p className="mb-3 text-sm text-muted">{t("savedTemplate.fieldsHint")}</p>
      <input
        type="search"
        aria-label={t("savedTemplate.searchFields")}
        placeholder={t("savedTemplate.searchFields")}
        className="control mb-3"
        value={search}
        onChange={({ target }) => setSearch(target.value)}
      />
      <ul
        aria-label={t("savedTemplate.fields")}
        className="max-h-128 divide-y overflow-y-auto rounded-lg border text-sm"
      >
        {found.map((field) => {
          const placed = parameters.filter(({ place }) => place?.path === field.path);
          const named = findPlaceholders(field.value);
          const own = [...placed, ...parameters.filter(({ name, place }) => !place && named.includes(name))];
          const only = own.length === 1 ? own[0] : undefined;
          return (
            <li key={field.path} className="flex items-center gap-3 px-3 py-1.5">
              <div className="min-w-0 flex-1">
                <div className="font-mono text-xs break-all text-muted">{field.path}</div>
                <div className="font-mono text-xs break-all">
                  {only?.place ? `${only.place.prefix}{{${only.name}}}` : formatValue(field.value)}
                </div>
              </div>
              {own.length > 0 && (
                <span className="flex flex-wrap justify-end gap-1">
                  {own.map(({ key, name }) => (
                    <Badge key={key} tone="accent">
                      {name}
                    </Badge>
                  ))}
                </span>
              )}
              {own.length === 0 ? (
                <Button
                  size="sm"
                  aria-label={t("savedTemplate.makeParameterOf", { path: field.path })}
                  onClick={() => onAdd(field)}
                >
                  <Plus />
                  {t("savedTemplate.makeParameter")}
                </Button>
              ) : (
                only?.place && (
                  <Button
                    size="sm"
                    look="ghost"
                    aria-label={t("savedTemplate.fixValueOf", { path: field.path })}
                    title={t("savedTemplate.fixValue")}
                    onClick={() => onRemove(only)}
                  >
                    <X />
                  </Button>
                )
              )}
            </li>
          );
        })}
        {found.length === 0 && <li className="px-3 py-4 text-center text-muted">{t("savedTemplate.noFields")}</li>}
      </ul>
    </>
  );
}

/** The whole request as text, for other changes than parameters. */
export function RequestText({ request, onChange }: { request: Json; onChange: (request: Json) => void }) {
  const { t } = useTranslation();
  const shown = JSON.stringify(request, null, 2);
  const [text, setText] = useState<string>();
  const [error, setError] = useState<string>();
  const apply = () => {
    try {
      const read: unknown = JSON.parse(text ?? shown);
      if (typeof read !== "object" || read === null || Array.isArray(read)) throw new SyntaxError("{}");
      setError(undefined);
      setText(undefined);
      onChange(read as Json);
    } catch (wrong) {
      setError(t("savedTemplate.jsonInvalid", { error: (wrong as Error).message }));
    }
  };
  return (
    <Collapsible
      wanted={false}
      className="mt-4"
      summaryClassName="text-sm font-medium"
      title={t("savedTemplate.asText")}
      whenOpen={() => (
        <div className="mt-2 space-y-2">
          <Field label={t("savedTemplate.requestText")} hint={t("savedTemplate.requestTextHint")} error={error}>
            {(wiring) => (
              <textarea
                {...wiring}
                rows={16}
                spellCheck={false}
                className="control h-auto py-2 font-mono text-xs"
                value={text ?? shown}
                onChange={({ target }) => setText(target.value)}
              />
            )}
          </Field>
          <div className="flex justify-end gap-2">
            <Button
              size="sm"
              look="ghost"
              disabled={text === undefined}
              onClick={() => {
                setText(undefined);
                setError(undefined);
              }}
            >
              {t("savedTemplate.discard")}
            </Button>
            <Button size="sm" disabled={text === undefined} onClick={apply}>
              {t("savedTemplate.apply")}
            </Button>
          </div>
        </div>
      )}
    />
  );
}
