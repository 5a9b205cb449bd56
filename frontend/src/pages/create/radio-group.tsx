import { useId } from "react";
import { cx } from "@/lib/cx";

interface RadiosProps<Value extends string> {
  legend: string;
  name: string;
  value: string;
  options: readonly { value: Value; label: string }[];
  error?: string;
  className?: string;
  onChange: (value: Value) => void;
}

/** A group of radio buttons. A `value` that is none of them selects none. */
export function RadioGroup<Value extends string>({
  legend,
  name,
  value,
  options,
  error,
  className,
  onChange,
}: RadiosProps<Value>) {
  const id = useId();
  return (
    <fieldset className={cx("grid min-w-0 gap-1.5", className)} aria-describedby={error && id}>
      <legend className="mb-1.5 text-sm font-medium">{legend}</legend>
      {options.map((option) => (
        <label
          key={option.value}
          className={cx(
            "flex min-h-9 items-center gap-2 rounded-lg border px-3 py-1.5 text-sm has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent-line",
            value === option.value && "border-accent-line bg-accent-soft",
          )}
        >
          <input
            type="radio"
            name={name}
            value={option.value}
            className="size-4 shrink-0 accent-accent outline-none"
            checked={value === option.value}
            onChange={() => onChange(option.value)}
          />
          {option.label}
        </label>
      ))}
      {error && (
        <p id={id} className="text-sm text-bad-ink">
          {error}
        </p>
      )}
    </fieldset>
  );
}
