import { Search } from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { Button } from "@/ui/button";
import { getPageCommands } from "./commands";
import { PALETTE_KEYS, useShortcuts } from "./use-shortcuts";
import {
  type ShortcutAction,
  focusSearchBox,
  isPageShortcut,
  ShortcutReader,
  moveListFocus,
  isPaletteShortcut,
  toggleFocusedRow,
} from "./shortcuts";

const Palette = lazy(() => import("./palette"));
const ShortcutHelp = lazy(() => import("./palette/shortcut-help"));

/** The button that opens the palette, with the keyboard shortcuts of every page. */
export function PaletteButton() {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [shown, setShown] = useState<"palette" | "help">();
  const [shortcuts] = useShortcuts();
  useEffect(() => {
    const reader = new ShortcutReader((pressed) => getPageCommands().find(({ keys }) => keys === pressed));
    const act = (deed: ShortcutAction) => {
      if (typeof deed === "object") {
        if ("go" in deed) void navigate(deed.go);
        else deed.run();
      } else if (deed === "search") {
        if (!focusSearchBox()) setShown("palette");
      } else if (deed === "down") moveListFocus(1);
      else if (deed === "up") moveListFocus(-1);
      else if (deed === "tick") toggleFocusedRow();
      else setShown(deed);
    };
    const onKeyDown = (event: KeyboardEvent) => {
      const deed = isPaletteShortcut(event)
        ? "palette"
        : shortcuts && isPageShortcut(event)
          ? reader.read(event.key, event.timeStamp)
          : undefined;
      if (!deed) return;
      event.preventDefault();
      act(deed);
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, [navigate, shortcuts]);
  const close = () => setShown(undefined);
  return (
    <>
      <Button
        size="sm"
        aria-keyshortcuts="Control+K Meta+K"
        className="max-lg:border-0 max-lg:px-2 lg:gap-2 lg:text-muted xl:max-[92rem]:border-0 xl:max-[92rem]:px-2"
        onClick={() => setShown("palette")}
      >
        <Search />
        <span className="font-normal max-lg:sr-only xl:max-[92rem]:sr-only">{t("palette.open")}</span>
        <kbd aria-hidden className="hidden font-sans text-xs lg:inline xl:max-[92rem]:hidden">
          {PALETTE_KEYS}
        </kbd>
      </Button>
      <Suspense>
        {shown === "palette" && <Palette onClose={close} onHelp={() => setShown("help")} />}
        {shown === "help" && <ShortcutHelp onClose={close} />}
      </Suspense>
    </>
  );
}
