import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Task } from "@/api/types";
import { Card } from "@/ui/card";
import { CopyButton } from "@/ui/copy-button";
import { getSourceLabel } from "./sources";

const SHOWN_AT_FIRST = 12;

/** What the script was configured with: searched, copied, and each a filter of the list of tasks. */
export default function Parameters({ task }: { task: Task }) {
  const { t } = useTranslation();
  const [search, setSearch] = useState("");
  const [all, setAll] = useState(false);
  const { parameters } = task;
  if (parameters.length === 0) return null;
  const needle = search.toLowerCase();
  const found = parameters.filter(({ name, value }) => `${name} ${value}`.toLowerCase().includes(needle));
  const shown = all || needle ? found : found.slice(0, SHOWN_AT_FIRST);
  const sources = [...new Set(parameters.map(({ source }) => source))].filter((source) => source !== "request");
  const text = found.map(({ name, value }) => `${name}: ${value}`).join("\n");
  return (
    <Card title={t("parameters.title", { count: parameters.length })} aside={<CopyButton text={text} />}>
      {sources.length > 0 && (
        <p className="mb-2 text-xs text-muted">
          {t("task.curveSource", { sources: sources.map((source) => getSourceLabel(t, source)).join(", ") })}
        </p>
      )}
      {parameters.length > SHOWN_AT_FIRST && (
        <input
          type="search"
          aria-label={t("parameters.find")}
          placeholder={t("parameters.find")}
          className="control mb-2"
          value={search}
          onChange={({ target }) => setSearch(target.value)}
        />
      )}
      {found.length === 0 && <p className="text-sm text-muted">{t("parameters.noMatch")}</p>}
      <dl className="max-h-96 space-y-1 overflow-y-auto text-sm">
        {shown.map(({ name, value }) => (
          <div key={name} className="flex justify-between gap-3">
            <dt className="min-w-0 break-all text-muted">{name}</dt>
            <dd className="max-w-[60%] shrink-0 text-right">
              <Link
                to={`/training?${new URLSearchParams({ parameter: `${name}=${value}` }).toString()}`}
                title={t("parameters.filter", { name, value })}
                className="break-all hover:text-accent-ink hover:underline"
              >
                {value || "–"}
              </Link>
            </dd>
          </div>
        ))}
      </dl>
      {found.length > shown.length && (
        <button
          type="button"
          className="mt-2 text-sm font-medium text-accent-ink hover:underline"
          onClick={() => setAll(true)}
        >
          {t("parameters.more", { count: found.length - shown.length })}
        </button>
      )}
    </Card>
  );
}
