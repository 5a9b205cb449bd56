import { type ReactNode, useEffect, useRef } from "react";

interface PageProps {
  title: string;
  heading?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

/**
 * A page with its title. The title is also the tab's, and takes the focus on arrival for screen readers, unless the
 * address has a `#id`.
 */
export function Page({ title, heading = title, actions, children }: PageProps) {
  const h1 = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (!location.hash) h1.current?.focus({ preventScroll: true });
  }, []);
  return (
    <>
      <title>{`${title} · Fermi`}</title>
      <div className="mb-4 flex min-h-9 flex-wrap items-center justify-between gap-3">
        <h1 ref={h1} tabIndex={-1} className="min-w-0 text-xl font-semibold break-words">
          {heading}
        </h1>
        {actions && <div className="flex flex-wrap gap-2">{actions}</div>}
      </div>
      {children}
    </>
  );
}
