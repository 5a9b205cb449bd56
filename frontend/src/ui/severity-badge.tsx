import { Check, CircleHelp, TriangleAlert, X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { Level } from "@/api/types";
import { Badge, type Tone } from "./badge";

export const SEVERITY_TONE: Record<Level, Tone> = { pass: "ok", warn: "warn", fail: "bad", unknown: "idle" };

/** A shape for each level, so that colour is not needed. */
export const SEVERITY_ICON: Record<Level, ReactNode> = {
  pass: <Check aria-hidden className="size-3.5 shrink-0" />,
  warn: <TriangleAlert aria-hidden className="size-3.5 shrink-0" />,
  fail: <X aria-hidden className="size-3.5 shrink-0" />,
  unknown: <CircleHelp aria-hidden className="size-3.5 shrink-0" />,
};

export function SeverityBadge({ level }: { level: Level }) {
  const { t } = useTranslation();
  return (
    <Badge tone={SEVERITY_TONE[level]}>
      {SEVERITY_ICON[level]}
      {t(`preflight.outcomeOf.${level}`)}
    </Badge>
  );
}
