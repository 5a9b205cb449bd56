import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { cleanLibraryCache, fileKeys, libraryCacheQuery } from "@/api/files";
import { escapeName } from "@/lib/escape-name";
import { formatBytes, formatDateTime } from "@/lib/format";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { Modal } from "@/ui/modal";

/** The size of what libraries of the project's tasks keep; its largest parts, and their removal, in a dialog. */
export function LibraryCache({ project }: { project: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const cache = useQuery(libraryCacheQuery(project)).data;
  const clean = useMutation({
    mutationFn: () => cleanLibraryCache(project),
    onSuccess: () => client.invalidateQueries({ queryKey: fileKeys.project(project) }),
    onError: (error) => toastError(t, error),
  });
  if (!cache?.measuredAt) return null;
  const size = `${cache.complete ? "" : "≥ "}${formatBytes(cache.sizeBytes)}`;
  return (
    <Modal
      wide
      title={t("files.cache")}
      description={t("files.cacheHint")}
      trigger={
        <Button look="ghost" size="sm">
          {cache.maxBytes === null
            ? t("files.cacheSize", { size })
            : t("files.cacheSizeOf", { size, most: formatBytes(cache.maxBytes) })}
        </Button>
      }
    >
      {cache.error && <p className="text-sm text-bad-ink">{escapeName(cache.error)}</p>}
      {cache.excessBytes > 0 && (
        <p className="text-sm">{t("files.cacheExcess", { size: formatBytes(cache.excessBytes) })}</p>
      )}
      {cache.cleanedAt && (
        <p className="text-sm text-muted">
          {t("files.cacheCleaned", { size: formatBytes(cache.freedBytes), at: formatDateTime(cache.cleanedAt) })}
        </p>
      )}
      <table className="my-3 w-full text-sm">
        <thead className="text-left text-muted">
          <tr>
            <th className="font-medium">{t("files.cacheUnit")}</th>
            <th className="font-medium">{t("files.size")}</th>
            <th className="font-medium">{t("files.cacheUsedAt")}</th>
          </tr>
        </thead>
        <tbody>
          {cache.largest.map(({ path, sizeBytes, usedAt }) => (
            <tr key={path}>
              <td className="pr-3 break-all">{escapeName(path)}</td>
              <td className="pr-3 whitespace-nowrap">{formatBytes(sizeBytes)}</td>
              <td className="whitespace-nowrap">{formatDateTime(usedAt)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {cache.mayClean && (
        <ConfirmDialog
          danger
          title={t("files.cacheCleanTitle")}
          description={t("files.cacheCleanHint")}
          action={t("files.cacheClean")}
          onConfirm={() => clean.mutate()}
          trigger={<Button disabled={clean.isPending}>{t("files.cacheClean")}</Button>}
        />
      )}
      {clean.isSuccess && <p className="mt-2 text-sm">{t("files.cacheBeingCleaned")}</p>}
    </Modal>
  );
}
