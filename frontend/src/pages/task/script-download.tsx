import { useMutation } from "@tanstack/react-query";
import { Download, FileCode } from "lucide-react";
import { useTranslation } from "react-i18next";
import { downloadScripts, TARGETS } from "@/api/scripts";
import { downloadBlob } from "@/lib/download";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { describeError } from "@/ui/errors";
import { Modal } from "@/ui/modal";

/** Downloads the task as scripts to start by hand. */
export function ScriptDownload({ id }: { id: string }) {
  const { t } = useTranslation();
  const download = useMutation({
    mutationFn: (target: (typeof TARGETS)[number]) => downloadScripts(id, target),
    onSuccess: ({ content, name }) => downloadBlob(content, name),
  });
  return (
    <Modal
      title={t("task.scriptsTitle")}
      description={t("task.scriptsHint")}
      onOpenChange={() => download.reset()}
      trigger={
        <Button>
          <FileCode />
          {t("task.scripts")}
        </Button>
      }
    >
      {download.error && (
        <div className="mb-3">
          <Callout tone="bad" role="alert">
            {describeError(t, download.error)}
          </Callout>
        </div>
      )}
      <ul className="divide-y text-sm">
        {TARGETS.map((target) => (
          <li key={target} className="flex items-center gap-3 py-2.5">
            <span className="min-w-0 flex-1">
              <span className="font-mono font-medium">{target}</span>
              <span className="block text-muted">{t(`task.scriptsOf.${target}`)}</span>
            </span>
            <Button
              size="sm"
              aria-label={t("task.scriptsGet", { target })}
              disabled={download.isPending}
              onClick={() => download.mutate(target)}
            >
              <Download />
              {t("logs.download")}
            </Button>
          </li>
        ))}
      </ul>
    </Modal>
  );
}
