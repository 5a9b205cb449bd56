interface ProgressProps {
  label: string;
  /** 0 … 1 */
  value: number;
}

export function ProgressBar({ label, value }: ProgressProps) {
  const percent = Math.floor(value * 100);
  return (
    <div
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent}
      className="h-2 overflow-hidden rounded-full bg-sunken"
    >
      <div className="h-full rounded-full bg-accent transition-[width]" style={{ width: `${value * 100}%` }} />
    </div>
  );
}
