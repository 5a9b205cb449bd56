import { useTranslation } from "react-i18next";
import { Badge } from "./badge";

interface GpusProps {
  type: string;
  count: number;
  emulated: boolean;
}

/** "2x A100", marked if they are emulated. */
export function GpuSummary({ type, count, emulated }: GpusProps) {
  const { t } = useTranslation();
  if (count === 0) return <span>{t("gpu.none")}</span>;
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap">
      {count}x {type}
      {emulated && (
        <Badge tone="info" title={t("gpu.emulatedHint")}>
          {t("gpu.emulated")}
        </Badge>
      )}
    </span>
  );
}
