import { Inbox } from "lucide-react";
import type { ReactNode } from "react";

export function EmptyState({ title, hint, children }: { title: string; hint?: string; children?: ReactNode }) {
  return (
    <div className="flex flex-col items-center gap-2 px-4 py-12 text-center">
      <span className="mb-1 rounded-full bg-sunken p-3 text-muted">
        <Inbox aria-hidden className="size-5" />
      </span>
      <p className="font-medium">{title}</p>
      {hint && <p className="max-w-md text-sm text-muted">{hint}</p>}
      {children && <div className="mt-3">{children}</div>}
    </div>
  );
}
