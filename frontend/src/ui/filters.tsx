import { Search } from "lucide-react";
import { useEffect, useState } from "react";
import { cx } from "@/lib/cx";
import { useDebounced } from "@/lib/hooks";

interface SearchBoxProps {
  label: string;
  value: string;
  onSettled: (text: string) => void;
  /** One of several in a line. */
  narrow?: boolean;
}

/** A search box. It reports the text after a pause in typing, and follows changes of the address. */
export function SearchBox({ label, value, onSettled, narrow }: SearchBoxProps) {
  const [text, setText] = useState(value);
  const settled = useDebounced(text, 300);
  const [was, setWas] = useState(value);
  if (was !== value) {
    setWas(value);
    if (value !== settled) setText(value);
  }
  useEffect(() => {
    if (settled !== value) onSettled(settled);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only what was typed may move the address
  }, [settled]);
  return (
    <div className={cx("relative w-full", narrow ? "sm:w-44" : "sm:w-72")}>
      <Search aria-hidden className="pointer-events-none absolute top-2.5 left-3 size-4 text-muted" />
      <input
        type="search"
        aria-label={label}
        placeholder={label}
        className="control pl-9"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
    </div>
  );
}

interface FilterSelectProps {
  label: string;
  /** The label for no filter. */
  any: string;
  options: [value: string, label: string][];
  value: string;
  onChange: (value: string) => void;
}

export function FilterSelect({ label, any, options, value, onChange }: FilterSelectProps) {
  return (
    <select
      aria-label={label}
      className="control w-auto max-w-52"
      value={value}
      onChange={({ target }) => onChange(target.value)}
    >
      <option value="">{any}</option>
      {options.map(([each, name]) => (
        <option key={each} value={each}>
          {name}
        </option>
      ))}
    </select>
  );
}
