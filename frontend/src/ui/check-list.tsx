import { cx } from "@/lib/cx";

interface Chosen {
  /** Ids. */
  chosen: readonly string[];
  onChange: (ids: string[]) => void;
  className?: string;
}

interface CheckListProps extends Chosen {
  items: readonly { id: string; name: string }[];
}

/** Items with a check box each, in a list that scrolls. */
export function CheckList({ items, chosen, onChange, className }: CheckListProps) {
  return (
    <ul className={cx("max-h-40 space-y-1 overflow-y-auto", className)}>
      {items.map(({ id, name }) => (
        <li key={id}>
          <CheckOption id={id} name={name} chosen={chosen} onChange={onChange} className="items-center gap-2" />
        </li>
      ))}
    </ul>
  );
}

/** A check box that adds its id to the chosen ones, or removes it. */
export function CheckOption({ id, name, chosen, onChange, className }: Chosen & { id: string; name: string }) {
  return (
    <label className={cx("flex", className)}>
      <input
        type="checkbox"
        checked={chosen.includes(id)}
        onChange={({ target }) => onChange(target.checked ? [...chosen, id] : chosen.filter((each) => each !== id))}
      />
      {name}
    </label>
  );
}
