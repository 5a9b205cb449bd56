import { useQuery } from "@tanstack/react-query";
import { ChevronDown } from "lucide-react";
import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { NavLink, useLocation } from "react-router";
import { openProposalsQuery } from "@/api/agents";
import { meQuery } from "@/api/session";
import { cx } from "@/lib/cx";
import { Popup } from "@/ui/popup";
import { NAV_PAGES, type NavGroup } from "./pages";

interface Entry {
  group?: NavGroup;
  pages: (typeof NAV_PAGES)[number][];
}

/** Returns the entries for a user: single pages, and groups where their first page is. */
const listEntries = (isAdministrator: boolean) =>
  NAV_PAGES.filter(({ administrator }) => isAdministrator || !administrator).reduce<Entry[]>((entries, page) => {
    const last = entries.at(-1);
    if (page.group && last?.group === page.group) last.pages.push(page);
    else entries.push({ ...(page.group && { group: page.group }), pages: [page] });
    return entries;
  }, []);

const buildClasses = (active: boolean) =>
  cx(
    "rounded-lg px-2 py-1.5 text-sm font-medium whitespace-nowrap",
    active ? "bg-accent-soft text-accent-ink" : "text-muted hover:text-ink",
  );

/** Links and groups of links in a line; on a phone all links in one line, which scrolls to the open page. */
export function Navigation() {
  const { t } = useTranslation();
  const { pathname } = useLocation();
  const isAdministrator = useQuery(meQuery).data?.isAdministrator ?? false;
  const strip = useRef<HTMLElement>(null);
  useEffect(() => {
    strip.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [pathname]);
  return (
    <nav
      ref={strip}
      aria-label={t("app.nav")}
      className="bare-scroll order-last -mx-1 flex w-full gap-0.5 overflow-x-auto p-1 sm:flex-wrap sm:overflow-visible xl:order-none xl:w-auto xl:min-w-0 xl:flex-1"
    >
      {listEntries(isAdministrator).map((entry) => (
        <Entry key={entry.pages[0]?.to} {...entry} pathname={pathname} />
      ))}
    </nav>
  );
}

const AGENTS = "/agents";
/** A larger number is shown as "9+": the navigation stays in one line. */
const MAX_COUNT_SHOWN = 9;

/** The number of proposals that wait for a decision; nothing without one. `floating`: it takes no width. */
function OpenProposals({ floating = false }: { floating?: boolean }) {
  const { t } = useTranslation();
  const count = useQuery(openProposalsQuery).data ?? 0;
  if (count === 0) return null;
  return (
    <span
      title={t("app.proposalsWaiting", { count })}
      className={cx(
        "rounded-full bg-bad px-1.5 text-xs text-white tabular-nums",
        floating ? "absolute -top-1 right-0 px-1" : "relative ml-1",
      )}
    >
      <span aria-hidden>{count > MAX_COUNT_SHOWN ? `${MAX_COUNT_SHOWN}+` : count}</span>
      <span className="sr-only">{t("app.proposalsWaiting", { count })}</span>
    </span>
  );
}

function Entry({ group, pages, pathname }: Entry & { pathname: string }) {
  const { t } = useTranslation();
  const links = pages.map(({ to, label }) => (
    <NavLink
      key={to}
      to={to}
      className={({ isActive }) => cx(buildClasses(isActive), group && pages.length > 1 && "sm:block")}
    >
      {t(label)}
      {to === AGENTS && <OpenProposals />}
    </NavLink>
  ));
  if (!group || pages.length === 1) return links;
  const current = pages.some(({ to }) => pathname === to || pathname.startsWith(`${to}/`));
  return (
    <>
      <div className="contents sm:hidden">{links}</div>
      <div className="hidden sm:block">
        <Popup
          current={current}
          look={{
            button: cx("flex-row-reverse gap-0.5 group-open:text-ink", buildClasses(current)),
            panel: "left-0 min-w-36 p-1",
          }}
          label={
            <>
              {t(`app.group.${group}`)}
              {pages.some(({ to }) => to === AGENTS) && <OpenProposals floating />}
            </>
          }
          icon={<ChevronDown aria-hidden className="size-3.5 group-open:rotate-180" />}
        >
          {links}
        </Popup>
      </div>
    </>
  );
}
