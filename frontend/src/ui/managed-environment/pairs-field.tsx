import { Plus, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";

export type Pair = [name: string, value: string];

interface PairsFieldProps {
  /** The form's value is the rows as JSON. */
  name: string;
  label: string;
  hint: string;
  error: string | undefined;
  rows: Pair[];
  nameLabel: string;
  valueLabel: string;
  numeric?: boolean;
}

/** Rows of pairs; rows with an empty part are left out. */
export function PairsField({ name, label, hint, error, rows: start, nameLabel, valueLabel, numeric }: PairsFieldProps) {
  const { t } = useTranslation();
  const [rows, setRows] = useState(start.map((pair, key) => ({ pair, key })));
  const [next, setNext] = useState(start.length);
  const change = (key: number, pair: Pair) => setRows(rows.map((row) => (row.key === key ? { pair, key } : row)));
  const text = rows.map(({ pair }) => pair).filter(([one, other]) => one.trim() || other.trim());
  return (
    <div className="space-y-2">
      <Field label={label} hint={hint} error={error}>
        {({ id, ...wiring }) => (
          <div id={id} {...wiring} role="group" aria-label={label} className="space-y-2">
            <input type="hidden" name={name} value={JSON.stringify(text)} />
            {rows.map(({ pair: [one, other], key }, index) => (
              <div key={key} className="flex items-center gap-2">
                <input
                  aria-label={`${nameLabel} ${index + 1}`}
                  placeholder={nameLabel}
                  className="control min-w-0 flex-1 font-mono"
                  autoComplete="off"
                  spellCheck={false}
                  value={one}
                  onChange={({ target }) => change(key, [target.value, other])}
                />
                <input
                  aria-label={`${valueLabel} ${index + 1}`}
                  placeholder={valueLabel}
                  className="control min-w-0 flex-1 font-mono"
                  autoComplete="off"
                  spellCheck={false}
                  {...(numeric && { inputMode: "numeric" })}
                  value={other}
                  onChange={({ target }) => change(key, [one, target.value])}
                />
                <Button
                  look="ghost"
                  size="icon"
                  aria-label={t("managedEnvironment.templates.removeRow", { row: index + 1, what: label })}
                  onClick={() => setRows(rows.filter((row) => row.key !== key))}
                >
                  <X />
                </Button>
              </div>
            ))}
          </div>
        )}
      </Field>
      <Button
        size="sm"
        onClick={() => {
          setRows([...rows, { pair: ["", ""], key: next }]);
          setNext(next + 1);
        }}
      >
        <Plus />
        {t("managedEnvironment.templates.addRow", { what: label })}
      </Button>
    </div>
  );
}
