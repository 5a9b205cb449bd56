import { Search } from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { useRemembered } from "@/lib/remembered";
import { Button } from "@/ui/button";
import { presentCommands } from "./commands";
import { type Deed, focusSearch, isForPage, KeyReader, moveInList, opensPalette, tickInList } from "./keys";

const Palette = lazy(() => import("./palette"));
const Help = lazy(() => import("./palette/help"));

export const PALETTE_KEYS = /Mac|iPhone|iPad/.test(navigator.userAgent) ? "⌘K" : "Ctrl K";

/** Shortcuts are on until somebody turns them off. */
export function useShortcuts(): [boolean, (on: boolean) => void] {
  const [value, remember] = useRemembered("shortcuts");
  return [value !== "off", (on) => remember(on ? null : "off")];
}

/** The palette with the button that opens it, and the keys that act on every page. */
export function Keyboard() {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [shown, setShown] = useState<"palette" | "help">();
  const [shortcuts] = useShortcuts();
  useEffect(() => {
    const reader = new KeyReader((pressed) => presentCommands().find(({ keys }) => keys === pressed));
    const act = (deed: Deed) => {
      if (typeof deed === "object") {
        if ("go" in deed) void navigate(deed.go);
        else deed.run();
      } else if (deed === "search") {
        if (!focusSearch()) setShown("palette");
      } else if (deed === "down") moveInList(1);
      else if (deed === "up") moveInList(-1);
      else if (deed === "tick") tickInList();
      else setShown(deed);
    };
    const onKeyDown = (event: KeyboardEvent) => {
      const deed = opensPalette(event)
        ? "palette"
        : shortcuts && isForPage(event)
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
        className="max-lg:border-0 max-lg:px-2 lg:gap-2 lg:text-muted"
        onClick={() => setShown("palette")}
      >
        <Search />
        <span className="font-normal max-lg:sr-only">{t("palette.open")}</span>
        <kbd aria-hidden className="hidden font-sans text-xs lg:inline">
          {PALETTE_KEYS}
        </kbd>
      </Button>
      <Suspense>
        {shown === "palette" && <Palette onClose={close} onHelp={() => setShown("help")} />}
        {shown === "help" && <Help onClose={close} />}
      </Suspense>
    </>
  );
}
