import { cx } from "@/lib/cx";

interface CheckListProps {
  items: readonly { id: string; name: string }[];
  /** Ids. */
  chosen: readonly string[];
  onChange: (ids: string[]) => void;
  className?: string;
}

/** Items with a check box each, in a list that scrolls. */
export function CheckList({ items, chosen, onChange, className }: CheckListProps) {
  return (
    <ul className={cx("max-h-40 space-y-1 overflow-y-auto", className)}>
      {items.map(({ id, name }) => (
        <li key={id}>
          <label className="flex items-center gap-2">
            <input
              type="checkbox"
              checked={chosen.includes(id)}
              onChange={({ target }) =>
                onChange(target.checked ? [...chosen, id] : chosen.filter((each) => each !== id))
              }
            />
            {name}
          </label>
        </li>
      ))}
    </ul>
  );
}
