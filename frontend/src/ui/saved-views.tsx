import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Bookmark, X } from "lucide-react";
import type { SubmitEvent } from "react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { deleteListView, saveListView, viewsQuery } from "@/api/saved-views";
import { cx } from "@/lib/cx";
import { Button } from "./button";
import { LoadError, toastError } from "./errors";
import { Popup } from "./popup";

/** Returns the parameters of a view: all but the page. */
function readViewQuery(params: URLSearchParams): string {
  const look = new URLSearchParams(params);
  look.delete("page");
  look.sort();
  return look.toString();
}

/** Filters, sort order and columns saved under a name, for the user on any device. */
export function SavedViews({ section }: { section: string }) {
  const { t } = useTranslation();
  return (
    <Popup label={t("list.views")} icon={<Bookmark aria-hidden />}>
      <Views section={section} />
    </Popup>
  );
}

function Views({ section }: { section: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [params] = useSearchParams();
  const views = useQuery(viewsQuery(section));
  const onError = (error: unknown) => toastError(t, error);
  const save = useMutation({ ...saveListView(client, section), onError });
  const remove = useMutation({ ...deleteListView(client, section), onError });
  const now = readViewQuery(params);
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const name = (new FormData(form).get("name") as string).trim();
    if (name) save.mutate({ name, query: now }, { onSuccess: () => form.reset() });
  };
  if (views.isError) return <LoadError error={views.error} retry={() => void views.refetch()} />;
  return (
    <>
      {views.data?.length === 0 && <p className="px-2 pb-2 text-sm text-muted">{t("list.noViews")}</p>}
      <ul className="max-h-64 overflow-y-auto">
        {views.data?.map(({ id, name, query }) => (
          <li key={id} className="flex items-center gap-1">
            <Link
              to={`?${query}`}
              aria-current={query === now}
              className={cx(
                "min-w-0 flex-1 truncate rounded px-2 py-1.5 text-sm hover:bg-sunken",
                query === now && "font-medium text-accent-ink",
              )}
            >
              {name}
            </Link>
            <Button
              look="ghost"
              size="icon"
              aria-label={t("list.deleteView", { name })}
              disabled={remove.isPending}
              onClick={() => remove.mutate(id)}
            >
              <X />
            </Button>
          </li>
        ))}
      </ul>
      <form onSubmit={submit} className="mt-1 flex gap-2 border-t pt-2">
        <input
          name="name"
          maxLength={60}
          required
          autoComplete="off"
          aria-label={t("list.viewName")}
          placeholder={t("list.viewName")}
          className="control"
        />
        <Button type="submit" disabled={save.isPending}>
          {t("list.saveView")}
        </Button>
      </form>
    </>
  );
}
