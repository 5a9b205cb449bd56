import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { BookmarkPlus, ChevronDown, Pencil, Save, Star, StarOff, Trash2, Users } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { changeRunView, createRunView, deleteRunView, runViewsQuery } from "@/api/runs";
import type { RunView } from "@/api/types";
import { canCreate, meQuery } from "@/api/session";
import { cx } from "@/lib/cx";
import { useLocalStorage } from "@/lib/use-local-storage";
import { Button } from "@/ui/button";
import { LoadError, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Menu, MenuItem, MenuSeparator } from "@/ui/menu";
import { DEFAULT_COLUMNS, isSameView, readView, type TableState, writeTableState, writeView } from "./table-state";
import { ALL_RUNS } from "./use-table-state";

const MAX_VIEW_NAME = 60;

/** Returns the id of the view that this browser opens first, and a setter. */
export const useDefaultView = () => useLocalStorage("runs.view");

const EVERYTHING: TableState = {
  query: "",
  columns: DEFAULT_COLUMNS,
  sort: "",
  groupBy: [],
  pinned: [],
  baseline: null,
  archived: false,
};

interface ViewBarProps {
  state: TableState;
  /** The view that was opened last. */
  view: string | null;
  onOpen: (state: TableState, view: string) => void;
}

/** The saved views as chips: the user's own and those of projects. */
export function ViewBar({ state, view, onOpen }: ViewBarProps) {
  const { t } = useTranslation();
  const views = useQuery(runViewsQuery);
  if (views.isError) return <LoadError error={views.error} retry={() => void views.refetch()} />;
  const isAll = view === null || view === ALL_RUNS || !views.data?.some(({ id }) => id === view);
  return (
    <nav aria-label={t("runs.views")} className="bare-scroll mb-3 flex items-center gap-1.5 overflow-x-auto py-1">
      <Chip
        isCurrent={isAll}
        to={`?${writeTableState(EVERYTHING, ALL_RUNS).toString()}`}
        isChanged={isAll && !isSameView(state, EVERYTHING)}
      >
        {t("runs.all")}
      </Chip>
      {views.data?.map((each) => (
        <ViewChip key={each.id} view={each} state={state} isCurrent={each.id === view} onOpen={onOpen} />
      ))}
      <SaveView state={state} onOpen={onOpen} />
    </nav>
  );
}

interface ChipProps {
  to: string;
  isCurrent: boolean;
  /** The table shows something else by now. */
  isChanged: boolean;
  icon?: ReactNode;
  menu?: ReactNode;
  children: ReactNode;
}

function Chip({ to, isCurrent, isChanged, icon, menu, children }: ChipProps) {
  const { t } = useTranslation();
  return (
    <span
      className={cx(
        "inline-flex h-8 shrink-0 items-center rounded-full border text-sm",
        isCurrent ? "border-accent-line bg-accent-soft text-accent-ink" : "bg-surface text-muted hover:text-ink",
      )}
    >
      <Link
        to={to}
        aria-current={isCurrent ? "true" : undefined}
        className={cx(
          "inline-flex h-full max-w-60 items-center gap-1.5 rounded-full pl-3 font-medium [&>svg]:size-3.5 [&>svg]:shrink-0",
          menu ? "pr-1" : "pr-3",
        )}
      >
        {icon}
        <span className="truncate">{children}</span>
        {isCurrent && isChanged && (
          <span title={t("runs.changedView")} className="size-1.5 shrink-0 rounded-full bg-current">
            <span className="sr-only">{t("runs.changedView")}</span>
          </span>
        )}
      </Link>
      {menu}
    </span>
  );
}

interface ViewChipProps {
  view: RunView;
  state: TableState;
  isCurrent: boolean;
  onOpen: (state: TableState, view: string) => void;
}

function ViewChip({ view, state, isCurrent, onOpen }: ViewChipProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const onError = (error: unknown) => toastError(t, error);
  const [defaultView, setDefaultView] = useDefaultView();
  const [isRenamed, setRenamed] = useState(false);
  const change = useMutation({ ...changeRunView(client), onError });
  const rename = useMutation(changeRunView(client));
  const remove = useMutation({ ...deleteRunView(client), onError });
  const { id, name, projectId, mayChange } = view;
  const stored = readView(view);
  const isChanged = !isSameView(state, stored);
  const isDefault = defaultView === id;
  const label = t("runs.viewActions", { name });
  return (
    <>
      <Chip
        to={`?${writeTableState(stored, id).toString()}`}
        isCurrent={isCurrent}
        isChanged={isChanged}
        icon={
          <>
            {projectId !== null && <Users role="img" aria-label={t("runs.projectView")} />}
            {isDefault && <Star role="img" aria-label={t("runs.defaultView")} />}
          </>
        }
        menu={
          <Menu
            label={label}
            trigger={
              <button type="button" aria-label={label} className="mr-1 rounded-full p-1 hover:bg-sunken">
                <ChevronDown aria-hidden className="size-3.5" />
              </button>
            }
          >
            {mayChange && (
              <MenuItem
                icon={<Save />}
                disabled={!isCurrent || !isChanged}
                onSelect={() => change.mutate({ id, ...writeView(state) })}
              >
                {t("runs.saveChanges")}
              </MenuItem>
            )}
            {mayChange && (
              <MenuItem icon={<Pencil />} onSelect={() => setRenamed(true)}>
                {t("runs.renameView")}
              </MenuItem>
            )}
            <MenuItem icon={isDefault ? <StarOff /> : <Star />} onSelect={() => setDefaultView(isDefault ? null : id)}>
              {t(isDefault ? "runs.noDefault" : "runs.makeDefault")}
            </MenuItem>
            {mayChange && (
              <>
                <MenuSeparator />
                <MenuItem
                  danger
                  icon={<Trash2 />}
                  onSelect={() =>
                    remove.mutate(id, {
                      onSuccess: () => {
                        if (isDefault) setDefaultView(null);
                        if (isCurrent) onOpen(state, ALL_RUNS);
                      },
                    })
                  }
                >
                  {t("runs.deleteView")}
                </MenuItem>
              </>
            )}
          </Menu>
        }
      >
        {name}
      </Chip>
      <FormDialog
        trigger={null}
        open={isRenamed}
        onOpenChange={setRenamed}
        title={t("runs.renameView")}
        submit={t("app.save")}
        fields={["name"]}
        onSubmit={async (texts) => {
          await rename.mutateAsync({ id, name: texts.name ?? "" });
        }}
      >
        {(problem) => (
          <TextField
            name="name"
            label={t("list.viewName")}
            defaultValue={name}
            required
            maxLength={MAX_VIEW_NAME}
            error={problem("name")}
          />
        )}
      </FormDialog>
    </>
  );
}

function SaveView({ state, onOpen }: Pick<ViewBarProps, "state" | "onOpen">) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const me = useQuery(meQuery).data;
  const create = useMutation(createRunView(client));
  const projects = me?.projects.filter(({ id }) => canCreate(me, id)) ?? [];
  return (
    <FormDialog
      trigger={
        <Button look="ghost" size="sm">
          <BookmarkPlus />
          {t("runs.saveView")}
        </Button>
      }
      title={t("runs.saveView")}
      description={t("runs.saveViewHint")}
      submit={t("app.save")}
      fields={["name", "projectId"]}
      onSubmit={async (texts) => {
        const body = { name: texts.name ?? "", projectId: texts.projectId || null, ...writeView(state) };
        const view = await create.mutateAsync(body);
        onOpen(state, view.id);
      }}
    >
      {(problem) => (
        <>
          <TextField
            name="name"
            label={t("list.viewName")}
            required
            maxLength={MAX_VIEW_NAME}
            error={problem("name")}
          />
          <Field label={t("runs.viewFor")} error={problem("projectId")}>
            {(wiring) => (
              <select {...wiring} name="projectId" className="control">
                <option value="">{t("runs.ownView")}</option>
                {projects.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {t("runs.viewOfProject", { name })}
                  </option>
                ))}
              </select>
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}
