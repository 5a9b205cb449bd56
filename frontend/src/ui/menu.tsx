import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";
import { cx } from "@/lib/cx";

interface MenuProps {
  trigger: ReactNode;
  label: string;
  children: ReactNode;
}

const PANEL = "z-40 min-w-44 rounded-lg border bg-surface p-1 text-sm shadow-lg";
const ITEM = cx(
  "flex cursor-pointer items-center gap-2 rounded px-2 py-1.5 outline-none select-none [&>svg]:size-4 [&>svg]:text-muted",
  "data-[highlighted]:bg-sunken data-[disabled]:cursor-default data-[disabled]:opacity-50",
);

/** A menu of actions below its button: arrows move, Enter chooses, Escape closes. */
export function Menu({ trigger, label, children }: MenuProps) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content aria-label={label} align="end" sideOffset={4} collisionPadding={8} className={PANEL}>
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

interface MenuItemProps {
  icon?: ReactNode;
  danger?: boolean;
  disabled?: boolean;
  onSelect: () => void;
  children: ReactNode;
}

export function MenuItem({ icon, danger, disabled = false, onSelect, children }: MenuItemProps) {
  return (
    <DropdownMenu.Item disabled={disabled} onSelect={onSelect} className={cx(ITEM, danger && "text-bad-ink")}>
      {icon}
      {children}
    </DropdownMenu.Item>
  );
}

/** An entry that downloads a file. */
export function MenuDownload({ icon, children, ...link }: { icon?: ReactNode; href: string; children: ReactNode }) {
  return (
    <DropdownMenu.Item asChild className={ITEM}>
      <a {...link} download>
        {icon}
        {children}
      </a>
    </DropdownMenu.Item>
  );
}

export function MenuSeparator() {
  return <DropdownMenu.Separator className="my-1 border-t" />;
}
