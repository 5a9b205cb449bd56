import { useTranslation } from "react-i18next";

/** The outline of a page that index.html shows until there is anything else; kept before React takes its place. */
const OUTLINE = document.getElementById("root")?.innerHTML ?? "";

/** The console before it knows who is there: what has stood there since the first answer, so that nothing jumps. */
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
