import { Download, FileText, Folder } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { buildDownloadUrl, type FileItem } from "@/api/files";
import { formatBytes, formatDateTime } from "@/lib/format";
import { escapeName } from "@/lib/escape-name";
import { ButtonAnchor } from "@/ui/button";
import { MEDIUM_COLUMN, Table, WIDE_COLUMN } from "@/ui/table";

interface FileListProps {
  items: FileItem[];
  /** The beginning of download addresses: "projects/…/files". */
  below: string;
  /** Results of a search, shown with their full paths. */
  whole: boolean;
  /** In a side column: names and sizes only. */
  narrow?: boolean;
  onOpen: (path: string) => void;
  actions?: ((item: FileItem) => ReactNode) | undefined;
}

/** Files and folders of a project or a task. */
export function FileList({ items, below, whole, narrow, onOpen, actions }: FileListProps) {
  const { t } = useTranslation();
  const columns = [
    { label: t("files.name") },
    { label: t("files.size"), className: "text-right" },
    ...(narrow
      ? []
      : [
          { label: t("files.modified"), className: MEDIUM_COLUMN },
          { label: t("files.by"), className: WIDE_COLUMN },
        ]),
    { label: <span className="sr-only">{t("files.list")}</span>, className: "w-px" },
  ];
  return (
    <Table label={t("files.list")} columns={columns}>
      {items.map((item) => {
        const shown = escapeName(whole ? item.path : item.name);
        const Icon = item.kind === "folder" ? Folder : FileText;
        return (
          <tr key={item.path} className="*:px-4 *:py-2">
            <td title={narrow ? formatDateTime(item.modifiedAt) : undefined}>
              <span className="flex items-center gap-2">
                <Icon aria-hidden className="size-4 shrink-0 text-muted" />
                {item.kind === "folder" ? (
                  <button type="button" className="link text-left break-all" onClick={() => onOpen(item.path)}>
                    {shown}
                  </button>
                ) : (
                  <span className="break-all">{shown}</span>
                )}
              </span>
            </td>
            <td className="text-right whitespace-nowrap tabular-nums">
              {item.sizeBytes === null ? "–" : formatBytes(item.sizeBytes)}
            </td>
            {!narrow && (
              <>
                <td className={`${MEDIUM_COLUMN} whitespace-nowrap text-muted`}>{formatDateTime(item.modifiedAt)}</td>
                <td className={`${WIDE_COLUMN} text-muted`}>{item.by || "–"}</td>
              </>
            )}
            <td>
              <span className="flex justify-end gap-1">
                <ButtonAnchor
                  look="ghost"
                  size="icon"
                  href={buildDownloadUrl(below, item)}
                  download
                  aria-label={t("files.downloadOf", { name: escapeName(item.name) })}
                >
                  <Download />
                </ButtonAnchor>
                {actions?.(item)}
              </span>
            </td>
          </tr>
        );
      })}
    </Table>
  );
}

/** The path of a folder; each part is a link. */
export function Breadcrumbs({ path, onOpen }: { path: string; onOpen: (path: string) => void }) {
  const { t } = useTranslation();
  const names = path ? path.split("/") : [];
  return (
    <nav aria-label={t("files.where")} className="flex min-w-0 flex-wrap items-center gap-1 text-sm">
      <button type="button" className="link" onClick={() => onOpen("")}>
        {t("files.top")}
      </button>
      {names.map((name, index) => (
        <span key={index} className="flex items-center gap-1">
          <span aria-hidden>/</span>
          <button type="button" className="link break-all" onClick={() => onOpen(names.slice(0, index + 1).join("/"))}>
            {escapeName(name)}
          </button>
        </span>
      ))}
    </nav>
  );
}
