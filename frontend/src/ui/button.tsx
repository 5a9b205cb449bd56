import type { ComponentProps } from "react";
import { Link, type LinkProps } from "react-router";
import { cx } from "@/lib/cx";

const LOOK = {
  primary: "bg-accent text-white hover:bg-accent-hover",
  secondary: "border border-line-strong/60 bg-surface text-ink hover:bg-sunken",
  ghost: "text-muted hover:bg-sunken hover:text-ink",
  danger: "bg-bad text-white hover:bg-bad-hover",
} as const;
const SIZE = {
  sm: "h-8 px-2.5 text-sm in-data-dense:h-6",
  md: "h-9 px-3.5 text-sm",
  icon: "size-9 justify-center",
} as const;

interface Style {
  look?: keyof typeof LOOK;
  size?: keyof typeof SIZE;
}

function style({ look = "secondary", size = "md" }: Style, className?: string): string {
  return cx(
    "inline-flex shrink-0 items-center gap-1.5 rounded-lg font-medium whitespace-nowrap transition-colors",
    "disabled:pointer-events-none disabled:opacity-50 [&>svg]:size-4 [&>svg]:shrink-0",
    LOOK[look],
    SIZE[size],
    className,
  );
}

export function Button({ look, size, className, type = "button", ...rest }: ComponentProps<"button"> & Style) {
  return <button type={type} className={style({ look, size }, className)} {...rest} />;
}

export function ButtonLink({ look, size, className, ...rest }: LinkProps & Style) {
  return <Link className={style({ look, size }, className)} {...rest} />;
}

export function ButtonAnchor({ look, size, className, ...rest }: ComponentProps<"a"> & Style) {
  return <a className={style({ look, size }, className)} {...rest} />;
}
