import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { FolderPlus, Pencil, Trash2, Upload } from "lucide-react";
import { type DragEvent, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import {
  deleteFile,
  type FileItem,
  FILES_PER_PAGE,
  invalidateFiles,
  filesQuery,
  fileUseQuery,
  createFolder,
  moveFile,
} from "@/api/files";
import { meQuery } from "@/api/session";
import { cx } from "@/lib/cx";
import { readPageNumber } from "@/lib/url-filters";
import { formatBytes } from "@/lib/format";
import { escapeName } from "@/lib/escape-name";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { LibraryCache } from "./library-cache";
import { FileList, Breadcrumbs } from "./list";
import { Uploads, useUploads } from "./uploads";

export function Component() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const [params, setParams] = useSearchParams();
  const projects = me?.projects ?? [];
  const project = params.get("project") ?? projects[0]?.id ?? "";
  const request = {
    path: params.get("path") ?? "",
    search: params.get("search") ?? "",
    page: readPageNumber(params),
  };
  const go = (to: Record<string, string>) =>
    setParams(Object.entries({ project, path: request.path, ...to }).filter(([, value]) => value !== ""));
  const role = projects.find(({ id }) => id === project)?.role;
  const writes = me?.isAdministrator === true || role === "member" || role === "maintainer";
  return (
    <Page title={t("files.title")}>
      <div className="mb-4 flex flex-wrap items-center gap-3">
        {projects.length > 1 && (
          <select
            aria-label={t("files.project")}
            className="control w-auto"
            value={project}
            onChange={({ target }) => go({ project: target.value, path: "" })}
          >
            {projects.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        )}
        <input
          type="search"
          aria-label={t("files.search")}
          placeholder={t("files.search")}
          className="control w-56"
          value={request.search}
          maxLength={100}
          onChange={({ target }) => go({ search: target.value })}
        />
        {project && <Use project={project} />}
        {project && <LibraryCache key={project} project={project} />}
      </div>
      {project && <Browser key={project} project={project} asked={request} writes={writes} go={go} />}
    </Page>
  );
}

function Use({ project }: { project: string }) {
  const { t } = useTranslation();
  const use = useQuery(fileUseQuery(project)).data;
  if (!use) return null;
  const used = formatBytes(use.usedBytes);
  const most = use.maxFileBytes;
  return (
    <p className="text-sm text-muted">
      {most === null ? t("files.used", { used }) : t("files.usedOf", { used, most: formatBytes(most) })}
      {" · "}
      {t("files.place")}: <code className="text-xs">{use.remote ? "$FERMI_FILES_URL" : "$FERMI_FILES_DIR"}</code>
    </p>
  );
}

interface BrowserProps {
  project: string;
  asked: { path: string; search: string; page: number };
  writes: boolean;
  go: (to: Record<string, string>) => void;
}

function Browser({ project, asked, writes, go }: BrowserProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const files = useQuery(filesQuery(project, asked));
  const uploads = useUploads(project);
  const [over, setOver] = useState(false);
  const chosen = useRef<HTMLInputElement>(null);
  const remove = useMutation({
    mutationFn: (path: string) => deleteFile(project, path),
    onSuccess: () => invalidateFiles(client, project),
    onError: (error) => toastError(t, error),
  });
  const open = (path: string) => go({ path });
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    uploads.add(event.dataTransfer.files, asked.path);
  };
  const dragging = writes
    ? {
        onDragOver: (event: DragEvent) => {
          event.preventDefault();
          setOver(true);
        },
        onDragLeave: () => setOver(false),
        onDrop: drop,
      }
    : {};
  const actions = (item: FileItem) => (
    <>
      <Rename project={project} item={item} />
      <ConfirmDialog
        danger
        title={t("files.removeTitle", { name: escapeName(item.name) })}
        description={t("files.removeHint")}
        action={t("files.remove")}
        onConfirm={() => remove.mutate(item.path)}
        trigger={
          <Button look="ghost" size="icon" aria-label={t("files.removeOf", { name: escapeName(item.name) })}>
            <Trash2 />
          </Button>
        }
      />
    </>
  );
  return (
    <div {...dragging} className={cx("space-y-4 rounded-xl", over && "outline-2 outline-accent outline-dashed")}>
      <div className="flex flex-wrap items-center justify-between gap-2">
        <Breadcrumbs path={asked.path} onOpen={open} />
        {writes && (
          <span className="flex flex-wrap gap-2">
            <NewFolder project={project} path={asked.path} />
            <input
              ref={chosen}
              type="file"
              multiple
              hidden
              onChange={({ target }) => {
                uploads.add(target.files ?? [], asked.path);
                target.value = "";
              }}
            />
            <Button look="primary" title={t("files.drop")} onClick={() => chosen.current?.click()}>
              <Upload />
              {t("files.upload")}
            </Button>
          </span>
        )}
      </div>
      <Uploads all={uploads.all} again={uploads.again} leave={uploads.leave} />
      {files.isError && <LoadError error={files.error} retry={() => void files.refetch()} />}
      {files.isPending && <Loading />}
      {files.data?.total === 0 && <EmptyState title={t("files.empty")} hint={writes ? t("files.emptyHint") : ""} />}
      {files.data && files.data.total > 0 && (
        <>
          <FileList
            items={files.data.items}
            below={`projects/${project}/files`}
            whole={asked.search !== ""}
            onOpen={open}
            actions={writes ? actions : undefined}
          />
          <Pager
            count={t("files.count", { count: files.data.total })}
            pages={Math.ceil(files.data.total / FILES_PER_PAGE)}
            page={asked.page}
            onPage={(page) => go({ search: asked.search, page: String(page) })}
          />
        </>
      )}
    </div>
  );
}

function NewFolder({ project, path }: { project: string; path: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const make = async ({ path: name = "" }: Record<string, string>) => {
    await createFolder(project, path ? `${path}/${name}` : name);
    await invalidateFiles(client, project);
  };
  return (
    <FormDialog
      title={t("files.newFolder")}
      submit={t("files.newFolder")}
      fields={["path"]}
      onSubmit={make}
      trigger={
        <Button>
          <FolderPlus />
          {t("files.newFolder")}
        </Button>
      }
    >
      {(problem) => <TextField name="path" label={t("files.folderName")} error={problem("path")} required />}
    </FormDialog>
  );
}

function Rename({ project, item }: { project: string; item: FileItem }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const move = async ({ to = "" }: Record<string, string>) => {
    await moveFile(project, item.path, to);
    await invalidateFiles(client, project);
  };
  return (
    <FormDialog
      title={t("files.renameOf", { name: escapeName(item.name) })}
      submit={t("files.rename")}
      fields={["to"]}
      onSubmit={move}
      trigger={
        <Button look="ghost" size="icon" aria-label={t("files.renameOf", { name: escapeName(item.name) })}>
          <Pencil />
        </Button>
      }
    >
      {(problem) => (
        <TextField name="to" label={t("files.newPath")} defaultValue={item.path} error={problem("to")} required />
      )}
    </FormDialog>
  );
}
