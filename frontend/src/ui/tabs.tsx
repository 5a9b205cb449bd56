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
  /** Where the page itself opens one; else the strip knows which is open. */
  open?: string;
  onOpen?: (id: string) => void;
  /** Whether all are mounted: of a form, whose controls are looked for by name. */
  keep?: boolean;
}

/** Only the chosen tab is mounted, so that the others ask for nothing. */
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
