import { CopyButton } from "@/ui/copy-button";

/** The address to be entered at the provider. */
export function CallbackUrl({ url }: { url: string }) {
  return (
    <p className="flex items-center gap-1 font-mono text-xs">
      <code className="min-w-0 break-all select-all">{url}</code>
      <CopyButton text={url} />
    </p>
  );
}

export function Flag({ name, label, hint, checked }: { name: string; label: string; hint: string; checked: boolean }) {
  return (
    <label className="flex items-start gap-2 text-sm">
      <input type="checkbox" name={name} className="mt-1" defaultChecked={checked} />
      <span>
        {label}
        <span className="block text-muted">{hint}</span>
      </span>
    </label>
  );
}
