import { useQueries } from "@tanstack/react-query";
import { CornerDownLeft, Search } from "lucide-react";
import { Dialog } from "radix-ui";
import { type KeyboardEvent, type ReactNode, useId, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { cx } from "@/lib/cx";
import { useDebounced } from "@/lib/hooks";
import { LoadError } from "@/ui/errors";
import { type Command, getPageCommands } from "../commands";
import { ShortcutKeys } from "./shortcut-keys";
import { useGlobalCommands } from "./global-commands";
import { SEARCH_KINDS, filterCommands, searchQuery } from "./search";

interface PaletteProps {
  onClose: () => void;
  onHelp: () => void;
}

interface Group {
  title: string;
  commands: Command[];
}

/** Opens any page, finds objects by name or id, and runs commands of the current page. */
export default function Palette({ onClose, onHelp }: PaletteProps) {
  const { t } = useTranslation();
  const went = useRef(false);
  const [asked, setAsked] = useState<Command>();
  const run = (command: Command) => {
    if (command.confirm && asked !== command) {
      setAsked(command);
      return;
    }
    went.current = true;
    onClose();
    command.run();
  };
  return (
    <Dialog.Root open onOpenChange={(open) => !open && onClose()}>
      <Dialog.Portal>
        <Dialog.Overlay className="fixed inset-0 z-40 bg-black/50" />
        <Dialog.Content
          aria-describedby={undefined}
          // Closing returns the focus, except after going to another page.
          onCloseAutoFocus={(event) => went.current && event.preventDefault()}
          onEscapeKeyDown={(event) => {
            if (!asked) return;
            event.preventDefault();
            setAsked(undefined);
          }}
          className="fixed top-[10vh] left-1/2 z-50 flex max-h-[75vh] w-[calc(100vw-2rem)] max-w-xl -translate-x-1/2 flex-col overflow-hidden rounded-xl border bg-surface shadow-2xl"
        >
          <Dialog.Title className="sr-only">{t("palette.title")}</Dialog.Title>
          {asked ? (
            <ConfirmCommand command={asked} onYes={() => run(asked)} onNo={() => setAsked(undefined)} />
          ) : (
            <CommandSearch onRun={run} onHelp={onHelp} />
          )}
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function ConfirmCommand({ command, onYes, onNo }: { command: Command; onYes: () => void; onNo: () => void }) {
  const { t } = useTranslation();
  const groups = [
    {
      title: command.confirm ?? "",
      commands: [
        { id: "no", label: t("app.cancel"), run: onNo },
        { id: "yes", label: command.label, run: onYes },
      ],
    },
  ];
  return <PaletteOption label={command.confirm ?? ""} text="" groups={groups} onRun={({ run }) => run()} />;
}

function CommandSearch({ onRun, onHelp }: { onRun: (command: Command) => void; onHelp: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const wanted = text.trim();
  const settled = useDebounced(wanted, 200);
  const own = useGlobalCommands(onHelp);
  const found = useQueries({ queries: SEARCH_KINDS.map((kind) => searchQuery(kind, wanted && settled)) });
  const failed = found.find(({ isError }) => isError);
  const waiting = wanted !== settled || found.some(({ isFetching }) => isFetching);
  const groups: Group[] = [
    { title: t("palette.here"), commands: filterCommands(getPageCommands(), wanted) },
    ...(wanted
      ? SEARCH_KINDS.map((kind, index) => ({
          title: t(`palette.kinds.${kind}`),
          commands: (found[index]?.data ?? []).map(({ id, name, to }) => ({
            id: `${kind} ${id}`,
            label: name,
            ...(name !== id && { detail: id }),
            run: () => navigate(to),
          })),
        }))
      : []),
    { title: t("palette.pages"), commands: filterCommands(own.pages, wanted) },
    { title: t("palette.actions"), commands: filterCommands(own.actions, wanted) },
  ].filter(({ commands }) => commands.length > 0);
  const count = groups.reduce((sum, { commands }) => sum + commands.length, 0);
  return (
    <PaletteOption
      label={t("palette.search")}
      text={text}
      onText={setText}
      groups={groups}
      onRun={onRun}
      below={
        <>
          {failed && (
            <div className="p-2">
              <LoadError error={failed.error} retry={() => found.forEach((one) => one.isError && void one.refetch())} />
            </div>
          )}
          <p role="status" className={cx(count > 0 ? "sr-only" : "px-4 py-8 text-center text-sm text-muted")}>
            {waiting ? t("app.loading") : count > 0 ? t("palette.count", { count }) : t("palette.nothing")}
          </p>
        </>
      }
    />
  );
}

interface ChoiceProps {
  label: string;
  text: string;
  onText?: (text: string) => void;
  groups: Group[];
  onRun: (command: Command) => void;
  below?: ReactNode;
}

/** A combobox: the focus stays in the text field, and the arrow keys move in the list. */
function PaletteOption({ label, text, onText, groups, onRun, below }: ChoiceProps) {
  const id = useId();
  const all = groups.flatMap(({ commands }) => commands);
  const [chosen, setChosen] = useState<string>();
  const at = Math.max(
    0,
    all.findIndex((command) => command.id === chosen),
  ); // the first, if the active one is gone
  const active = all[at];
  const placeOf = (command: Command) => `${id}-${command.id.replaceAll(/\W/g, "-")}`;
  const choose = (index: number) => {
    const next = all.at(index % all.length);
    setChosen(next?.id);
    if (next) document.getElementById(placeOf(next))?.scrollIntoView({ block: "nearest" });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "ArrowDown") choose(at + 1);
    else if (event.key === "ArrowUp") choose(at - 1);
    else if (event.key === "Enter" && active) onRun(active);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <div className="flex items-center gap-3 border-b px-4">
        <Search aria-hidden className="size-4 shrink-0 text-muted" />
        <input
          autoFocus
          role="combobox"
          aria-label={label}
          aria-expanded
          aria-controls={id}
          aria-autocomplete="list"
          aria-activedescendant={active && placeOf(active)}
          autoComplete="off"
          spellCheck={false}
          placeholder={label}
          readOnly={!onText}
          className="h-13 min-w-0 flex-1 bg-transparent text-base outline-none placeholder:text-muted"
          value={text}
          onChange={({ target }) => {
            onText?.(target.value);
            setChosen(undefined);
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      <div id={id} role="listbox" aria-label={label} className={cx("overflow-y-auto", all.length > 0 && "p-2")}>
        {groups.map(({ title, commands }) => (
          <div key={title} role="group" aria-label={title}>
            <div aria-hidden className="px-2 pt-2 pb-1 text-xs font-medium text-muted">
              {title}
            </div>
            {commands.map((command) => (
              <div
                key={command.id}
                id={placeOf(command)}
                role="option"
                aria-selected={command === active}
                onPointerMove={() => setChosen(command.id)}
                onClick={() => onRun(command)}
                className={cx(
                  "flex cursor-pointer items-center gap-3 rounded-lg px-2 py-2 text-sm",
                  command === active && "bg-accent-soft text-accent-ink",
                )}
              >
                <span className="min-w-0 flex-1 truncate">{command.label}</span>
                {command.detail && <span className="truncate font-mono text-xs text-muted">{command.detail}</span>}
                {command.keys && <ShortcutKeys keys={command.keys} />}
                {command === active && <CornerDownLeft aria-hidden className="size-3.5 shrink-0" />}
              </div>
            ))}
          </div>
        ))}
      </div>
      {below}
    </>
  );
}
