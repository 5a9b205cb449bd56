import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "./button";

interface PagerProps {
  /** "120 tasks" */
  count: string;
  pages: number;
  page: number;
  onPage: (page: number) => void;
}

/** Pages of a list. A page that does not exist leads to the last one. */
export function Pager({ count, pages, page, onPage }: PagerProps) {
  const { t } = useTranslation();
  const beyond = pages > 0 && page > pages;
  useEffect(() => {
    if (beyond) onPage(pages);
  });
  return (
    <div className="mt-3 flex flex-wrap items-center justify-between gap-2 text-sm text-muted">
      <span>{count}</span>
      {pages > 1 && (
        <span className="flex items-center gap-2">
          <Button size="sm" disabled={page <= 1} onClick={() => onPage(page - 1)}>
            {t("app.previous")}
          </Button>
          {t("app.page", { page, pages })}
          <Button size="sm" disabled={page >= pages} onClick={() => onPage(page + 1)}>
            {t("app.next")}
          </Button>
        </span>
      )}
    </div>
  );
}
