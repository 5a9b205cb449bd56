import { ChevronDown, ChevronsUp, ChevronUp, Minus } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { PriorityClass } from "@/api/types";
import { Badge, type Tone } from "./badge";

const TONE: Record<PriorityClass, Tone> = { low: "idle", normal: "idle", high: "info", urgent: "warn" };
/** A shape for each class, so that colour is not needed. */
const ICON: Record<PriorityClass, ReactNode> = {
  low: <ChevronDown aria-hidden className="size-3.5" />,
  normal: <Minus aria-hidden className="size-3.5" />,
  high: <ChevronUp aria-hidden className="size-3.5" />,
  urgent: <ChevronsUp aria-hidden className="size-3.5" />,
};

export function PriorityBadge({ priority }: { priority: PriorityClass }) {
  const { t } = useTranslation();
  return (
    <Badge tone={TONE[priority]}>
      {ICON[priority]}
      {t(`queue.classOf.${priority}`)}
    </Badge>
  );
}
