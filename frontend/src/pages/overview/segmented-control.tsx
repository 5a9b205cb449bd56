import { cx } from "@/lib/cx";

interface ChoiceProps<Name extends string> {
  label: string;
  options: readonly [Name, string][];
  chosen: Name;
  onChange: (name: Name) => void;
}

/** A choice between a few options, side by side. */
export function SegmentedControl<Name extends string>({ label, options, chosen, onChange }: ChoiceProps<Name>) {
  return (
    <div role="group" aria-label={label} className="inline-flex max-w-full overflow-x-auto rounded-lg bg-sunken p-0.5">
      {options.map(([name, text]) => (
        <button
          key={name}
          type="button"
          aria-pressed={name === chosen}
          onClick={() => onChange(name)}
          className={cx(
            "rounded-md px-2 py-0.5 text-xs font-medium whitespace-nowrap -outline-offset-2",
            name === chosen ? "bg-surface text-ink shadow-xs" : "text-muted hover:text-ink",
          )}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
