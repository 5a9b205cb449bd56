export function Logo({ className = "size-7" }: { className?: string }) {
  return <img src="/favicon.svg" alt="" className={className} />;
}
