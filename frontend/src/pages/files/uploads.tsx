import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import { invalidateFiles, uploadFile } from "@/api/files";
import { escapeName } from "@/lib/escape-name";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { describeError } from "@/ui/errors";
import { ProgressBar } from "@/ui/progress-bar";

const MAX_PARALLEL_UPLOADS = 3;

export interface UploadState {
  id: number;
  path: string;
  file: File;
  share: number;
  state: "waiting" | "sending" | "done" | "failed";
  error?: unknown;
}

/** Uploads files, a few at a time. A failed upload continues where it stopped. */
export function useUploads(project: string) {
  const client = useQueryClient();
  const [all, setAll] = useState<UploadState[]>([]);
  const next = useRef(0);
  const stops = useRef(new Map<number, AbortController>());
  const waiting = useRef<{ one: UploadState; replace: boolean }[]>([]);
  useEffect(() => {
    const running = stops.current;
    return () => running.forEach((stop) => stop.abort());
  }, []);

  const change = (id: number, to: Partial<UploadState>) =>
    setAll((before) => before.map((one) => (one.id === id ? { ...one, ...to } : one)));
  const begin = () => {
    while (stops.current.size < MAX_PARALLEL_UPLOADS) {
      const first = waiting.current.shift();
      if (!first) return;
      void send(first.one, first.replace);
    }
  };
  const send = async ({ id, path, file }: UploadState, replace: boolean) => {
    const stop = new AbortController();
    stops.current.set(id, stop);
    change(id, { state: "sending", error: undefined });
    try {
      await uploadFile(project, path, file, replace, (share) => change(id, { share }), stop.signal);
      change(id, { state: "done", share: 1 });
      await invalidateFiles(client, project);
    } catch (error) {
      if (!stop.signal.aborted) change(id, { state: "failed", error });
    } finally {
      stops.current.delete(id);
      begin();
    }
  };
  const add = (files: Iterable<File>, folder: string) => {
    const more = [...files].map((file): UploadState => {
      const name = file.webkitRelativePath || file.name;
      return { id: next.current++, path: folder ? `${folder}/${name}` : name, file, share: 0, state: "waiting" };
    });
    setAll((before) => [...before, ...more]);
    waiting.current.push(...more.map((one) => ({ one, replace: false })));
    begin();
  };
  const again = (one: UploadState, replace: boolean) => {
    waiting.current.push({ one, replace });
    begin();
  };
  const leave = (id: number) => {
    stops.current.get(id)?.abort();
    waiting.current = waiting.current.filter(({ one }) => one.id !== id);
    setAll((before) => before.filter((one) => one.id !== id));
  };
  return { all, add, again, leave };
}

export function Uploads({ all, again, leave }: Omit<ReturnType<typeof useUploads>, "add">) {
  const { t } = useTranslation();
  if (all.length === 0) return null;
  return (
    <Card title={t("files.uploads")}>
      <ul className="space-y-3 text-sm">
        {all.map((one) => (
          <li key={one.id}>
            <div className="flex flex-wrap items-center justify-between gap-2">
              <span className="min-w-0 break-all">{escapeName(one.path)}</span>
              <span className="flex items-center gap-2 text-muted">
                {one.state === "done" && t("files.sent")}
                {one.state === "failed" && t("files.failed")}
                {one.state === "failed" && (
                  <Button size="sm" onClick={() => again(one, existsAlready(one.error))}>
                    {existsAlready(one.error) ? t("files.replace") : t("files.again")}
                  </Button>
                )}
                <Button size="sm" look="ghost" onClick={() => leave(one.id)}>
                  {one.state === "done" ? t("app.close") : t("files.stop")}
                </Button>
              </span>
            </div>
            <ProgressBar
              small
              label={one.share > 0 ? escapeName(one.path) : `${t("files.hashing")}: ${escapeName(one.path)}`}
              value={one.share}
            />
            {one.error !== undefined && (
              <p role="alert" className="mt-1 text-bad-ink">
                {one.error instanceof ApiError || !(one.error instanceof Error)
                  ? describeError(t, one.error)
                  : one.error.message}
              </p>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** Returns whether a different file of this name exists. */
const existsAlready = (error: unknown) => error instanceof ApiError && error.code === "FILE_EXISTS";
