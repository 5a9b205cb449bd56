import { NavLink } from "react-router";
import { cx } from "@/lib/cx";

/** Links between pages that belong together. */
export function SectionNav({ label, links }: { label: string; links: { to: string; label: string }[] }) {
  return (
    <nav aria-label={label} className="strip mb-4 flex gap-1">
      {links.map(({ to, label: name }) => (
        <NavLink
          key={to}
          to={to}
          end
          className={({ isActive }) =>
            cx(
              "border-b-2 px-3 py-2 text-sm font-medium whitespace-nowrap -outline-offset-2",
              isActive ? "border-accent-line text-ink" : "border-transparent text-muted hover:text-ink",
            )
          }
        >
          {name}
        </NavLink>
      ))}
    </nav>
  );
}
