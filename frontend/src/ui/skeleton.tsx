import { useTranslation } from "react-i18next";

/** The page's outline in index.html, saved before React replaces it. */
const OUTLINE = document.getElementById("root")?.innerHTML ?? "";

/** Shown until the session is known: the outline of index.html, so that nothing moves. */
export function Skeleton() {
  const { t } = useTranslation();
  return (
    <>
      <p role="status" className="sr-only">
        {t("app.loading")}
      </p>
      <div dangerouslySetInnerHTML={{ __html: OUTLINE }} />
    </>
  );
}
