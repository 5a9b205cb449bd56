import { useTranslation } from "react-i18next";
import { Modal } from "@/ui/modal";
import { getPageCommands } from "../commands";
import { PALETTE_KEYS } from "../use-shortcuts";
import { OTHER_PAGES, NAV_PAGES } from "../pages";
import { ShortcutKeys } from "./shortcut-keys";

/** All keyboard shortcuts. */
export default function ShortcutHelp({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const anywhere = [
    [PALETTE_KEYS, t("palette.title")],
    ["/", t("palette.does.search")],
    ["c", t("tasks.create")],
    ["?", t("palette.help")],
  ] as const;
  const lists = [
    ["j", t("palette.does.down")],
    ["k", t("palette.does.up")],
    ["Enter", t("palette.does.open")],
    ["x", t("palette.does.tick")],
  ] as const;
  const current = getPageCommands().flatMap(({ keys, label }) => (keys ? [[keys, label] as const] : []));
  const pages = [...NAV_PAGES, ...OTHER_PAGES].filter(({ key }) => key);
  return (
    <Modal
      wide
      open
      title={t("palette.help")}
      description={t("palette.helpHint")}
      onOpenChange={(open) => !open && onClose()}
    >
      <div className="grid gap-x-8 gap-y-5 sm:grid-cols-2">
        <ShortcutSection
          title={t("palette.pages")}
          keys={pages.map(({ key, label }) => [`g ${key}`, t(label)] as const)}
        />
        <div className="space-y-5">
          {current.length > 0 && <ShortcutSection title={t("palette.here")} keys={current} />}
          <ShortcutSection title={t("palette.everywhere")} keys={anywhere} />
          <ShortcutSection title={t("palette.lists")} keys={lists} />
        </div>
      </div>
    </Modal>
  );
}

function ShortcutSection({ title, keys }: { title: string; keys: readonly (readonly [string, string])[] }) {
  return (
    <section>
      <h3 className="mb-1 text-sm font-semibold">{title}</h3>
      <dl className="divide-y text-sm">
        {keys.map(([press, does]) => (
          <div key={press} className="flex items-center justify-between gap-3 py-1.5">
            <dt>{does}</dt>
            <dd>
              <ShortcutKeys keys={press} />
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
