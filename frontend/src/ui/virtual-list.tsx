import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, type Ref, type UIEvent, useEffect, useImperativeHandle, useRef } from "react";

export interface VirtualListHandle {
  scrollTo: (index: number, align: "start" | "center") => void;
}

interface RowsProps {
  control?: Ref<VirtualListHandle>;
  count: number;
  /** Pixels; the same for every row. */
  height: number;
  label: string;
  className?: string;
  /** `rowgroup` inside a table. */
  role?: "group" | "rowgroup";
  /** Stays at the last row as rows are added. */
  follow?: boolean;
  /** Called when the user leaves the last row or returns to it. */
  onFollow?: (follow: boolean) => void;
  /** Called with the first visible row at each scroll. */
  onTop?: (index: number) => void;
  children: (index: number) => ReactNode;
}

/** A scrolling list that renders only visible rows. */
export function VirtualList({
  count,
  height,
  label,
  className,
  role = "group",
  follow = false,
  onFollow,
  onTop,
  control,
  children,
}: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- only this component reads the virtualizer
  const rows = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    overscan: 20,
  });
  useEffect(() => {
    if (follow && count > 0) rows.scrollToIndex(count - 1);
  }, [rows, follow, count]);
  useImperativeHandle(control, () => ({ scrollTo: (index, align) => rows.scrollToIndex(index, { align }) }), [rows]);
  const onScroll = ({ currentTarget: { scrollHeight, scrollTop, clientHeight } }: UIEvent<HTMLDivElement>) => {
    onFollow?.(scrollHeight - scrollTop - clientHeight < 2 * height);
    onTop?.(Math.round(scrollTop / height));
  };
  return (
    <div ref={box} role={role} aria-label={label} tabIndex={0} className={className} onScroll={onScroll}>
      <div className="relative min-w-max" style={{ height: rows.getTotalSize() }}>
        {rows.getVirtualItems().map((row) => (
          <div
            key={row.key}
            className="absolute inset-x-0 top-0"
            style={{ height, transform: `translateY(${row.start}px)` }}
          >
            {children(row.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
