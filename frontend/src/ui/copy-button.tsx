import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { cx } from "@/lib/cx";
import { Button } from "./button";

/** A copy button. Browsers offer the clipboard only on https and localhost; elsewhere there is no button. */
export function CopyButton({ text }: { text: string }) {
  const { t } = useTranslation();
  const [copied, setCopied] = useState(false);
  if (!("clipboard" in navigator)) return null;
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <Button look="ghost" size="icon" aria-label={copied ? t("app.copied") : t("app.copy")} onClick={copy}>
      {copied ? <Check /> : <Copy />}
    </Button>
  );
}

/** A text to be copied whole, such as a token or an address. */
export function CopyText({ text, className }: { text: string; className?: string }) {
  return (
    <p className={cx("flex items-center gap-2 font-mono text-xs", className)}>
      <code className="min-w-0 break-all select-all">{text}</code>
      <CopyButton text={text} />
    </p>
  );
}
