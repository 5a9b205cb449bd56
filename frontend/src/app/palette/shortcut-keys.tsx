/** Keys to press one after the other. */
export function ShortcutKeys({ keys }: { keys: string }) {
  return (
    <span className="flex shrink-0 gap-1">
      {keys.split(" ").map((key, index) => (
        <kbd
          key={index}
          className="min-w-6 rounded border bg-sunken px-1.5 py-0.5 text-center font-sans text-xs text-muted"
        >
          {key}
        </kbd>
      ))}
    </span>
  );
}
