import { CircleQuestionMark } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Popup } from "@/ui/popup";

/** Examples of the language; each is a text of its own in `runs.examples`. */
const EXAMPLES = [
  ["status", "status:failed,stopped"],
  ["parameter", "lr>1e-4 optimizer:adam*"],
  ["metric", "metric.val_loss.best<3.1"],
  ["tag", 'tag:baseline data:"wiki v2"'],
  ["time", "created>=2026-11-01 duration>2h"],
  ["not", "-name:test*"],
  ["or", "(owner:ann or owner:bo) age<7d"],
  ["words", "unet"],
] as const;

/** Examples of queries; a press adds one to the query. */
export function QueryHelp({ onChoose }: { onChoose: (example: string) => void }) {
  const { t } = useTranslation();
  return (
    <Popup wide label={<span className="sr-only">{t("runs.help")}</span>} icon={<CircleQuestionMark aria-hidden />}>
      <p className="px-2 pb-2 text-sm text-muted">{t("runs.helpHint")}</p>
      <ul>
        {EXAMPLES.map(([name, example]) => (
          <li key={name}>
            <button
              type="button"
              className="w-full rounded px-2 py-1.5 text-left text-sm hover:bg-sunken"
              onClick={() => onChoose(example)}
            >
              <code className="block font-mono text-xs break-all">{example}</code>
              <span className="text-xs text-muted">{t(`runs.examples.${name}`)}</span>
            </button>
          </li>
        ))}
      </ul>
    </Popup>
  );
}
