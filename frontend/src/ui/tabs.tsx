import { Tabs as Radix } from "radix-ui";
import type { ReactNode } from "react";

export interface Tab {
  id: string;
  label: ReactNode;
  content: ReactNode;
}

interface TabsProps {
  tabs: Tab[];
  label: string;
  /** The open tab, if the page controls it. */
  open?: string;
  onOpen?: (id: string) => void;
  /** Mounts all tabs: for forms, whose controls are found by name. */
  keep?: boolean;
}

/** Tabs. Only the open one is mounted, so that others request nothing. */
export function Tabs({ tabs, label, open, onOpen, keep }: TabsProps) {
  return (
    <Radix.Root defaultValue={tabs[0]?.id} value={open} onValueChange={onOpen}>
      <Radix.List aria-label={label} className="strip flex gap-1 px-2">
        {tabs.map((tab) => (
          <Radix.Trigger
            key={tab.id}
            value={tab.id}
            className="border-b-2 border-transparent px-3 py-2.5 text-sm font-medium whitespace-nowrap text-muted -outline-offset-2 hover:text-ink data-[state=active]:border-accent-line data-[state=active]:text-ink"
          >
            {tab.label}
          </Radix.Trigger>
        ))}
      </Radix.List>
      {tabs.map((tab) => (
        <Radix.Content
          key={tab.id}
          value={tab.id}
          className="p-4 data-[state=inactive]:hidden"
          tabIndex={-1}
          forceMount={keep || undefined}
        >
          {tab.content}
        </Radix.Content>
      ))}
    </Radix.Root>
  );
}
