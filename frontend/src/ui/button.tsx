import type { ComponentProps } from "react";
import { Link, type LinkProps } from "react-router";
import { cx } from "@/lib/cx";

const VARIANT_CLASSES = {
  primary: "bg-accent text-white hover:bg-accent-hover",
  secondary: "border border-line-strong/60 bg-surface text-ink hover:bg-sunken",
  ghost: "text-muted hover:bg-sunken hover:text-ink",
  danger: "bg-bad text-white hover:bg-bad-hover",
} as const;
const SIZE_CLASSES = {
  sm: "h-8 px-2.5 text-sm in-data-dense:h-6",
  md: "h-9 px-3.5 text-sm",
  icon: "size-9 justify-center",
} as const;

interface Style {
  look?: keyof typeof VARIANT_CLASSES;
  size?: keyof typeof SIZE_CLASSES;
}

function buildButtonClasses({ look = "secondary", size = "md" }: Style, className?: string): string {
  return cx(
    "inline-flex shrink-0 items-center gap-1.5 rounded-lg font-medium whitespace-nowrap transition-colors",
    "disabled:pointer-events-none disabled:opacity-50 [&>svg]:size-4 [&>svg]:shrink-0",
    VARIANT_CLASSES[look],
    SIZE_CLASSES[size],
    className,
  );
}

export function Button({ look, size, className, type = "button", ...rest }: ComponentProps<"button"> & Style) {
  return <button type={type} className={buildButtonClasses({ look, size }, className)} {...rest} />;
}

export function ButtonLink({ look, size, className, ...rest }: LinkProps & Style) {
  return <Link className={buildButtonClasses({ look, size }, className)} {...rest} />;
}

export function ButtonAnchor({ look, size, className, ...rest }: ComponentProps<"a"> & Style) {
  return <a className={buildButtonClasses({ look, size }, className)} {...rest} />;
}
