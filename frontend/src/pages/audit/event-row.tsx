import { ChevronDown } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { AuditEvent } from "@/api/audit";
import type { Me } from "@/api/types";
import { buildAuditAddress } from "@/lib/audit-address";
import { cx } from "@/lib/cx";
import { escapeName } from "@/lib/escape-name";
import { formatDateTime } from "@/lib/format";
import { Button } from "@/ui/button";
import { CodeBlock } from "@/ui/code-block";
import { MEDIUM_COLUMN, ROW, WIDE_COLUMN } from "@/ui/table";
import { TextLink } from "@/ui/text-link";

const COLUMNS = 6;

/** An event in a row, with its details in a second one. */
export function EventRow({ event, projects }: { event: AuditEvent; projects: Me["projects"] }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const id = useId();
  const { at, action, actionText, target } = event;
  const project = event.project && (projects.find((each) => each.id === event.project)?.name ?? event.project);
  return (
    <>
      <tr className={ROW}>
        <td className="text-muted tabular-nums md:whitespace-nowrap">{formatDateTime(at)}</td>
        <td className={MEDIUM_COLUMN}>
          <Actor event={event} />
        </td>
        <td title={action}>
          {actionText}
          <span className="block break-all text-muted md:hidden">{escapeName(target)}</span>
          <span className="block md:hidden">
            <Actor event={event} />
          </span>
        </td>
        <td className={cx(MEDIUM_COLUMN, "break-all")}>{escapeName(target)}</td>
        <td className={cx(WIDE_COLUMN, "break-words")}>{project || "–"}</td>
        <td className="w-px">
          <Button
            look="ghost"
            size="icon"
            aria-expanded={open}
            aria-controls={open ? id : undefined}
            aria-label={t("audit.detailsOf", { action: actionText, target })}
            onClick={() => setOpen(!open)}
          >
            <ChevronDown className={cx("transition-transform", open && "rotate-180")} />
          </Button>
        </td>
      </tr>
      {open && (
        <tr id={id} className="bg-sunken/60">
          <td colSpan={COLUMNS} className="px-4 py-3">
            <Details event={event} project={project} />
          </td>
        </tr>
      )}
    </>
  );
}

function Actor({ event: { actor, token, tokenName } }: { event: AuditEvent }) {
  const { t } = useTranslation();
  return (
    <>
      <span className="wrap-anywhere">{actor ?? t("audit.platform")}</span>
      {token && (
        <span className="block wrap-anywhere text-muted">{t("audit.byToken", { name: tokenName || token })}</span>
      )}
    </>
  );
}

function Details({ event, project }: { event: AuditEvent; project: string | null }) {
  const { t } = useTranslation();
  const { actor, action, target, token, tokenName, address, requestId, data } = event;
  const facts: [label: string, value: ReactNode][] = [
    [t("audit.actor"), actor ? <Filtered name="actor" value={actor} /> : t("audit.platform")],
    [t("audit.name"), <Filtered key="action" name="action" value={action} />],
    [t("audit.target"), target ? <Target target={target} /> : "–"],
    [t("audit.project"), event.project ? <Filtered name="project" value={event.project} text={project} /> : "–"],
    [t("audit.token"), token ? <Filtered name="token" value={token} text={tokenName} /> : t("audit.noToken")],
    [t("audit.address"), address ? <Filtered name="address" value={address} /> : "–"],
    [t("audit.request"), requestId ? <code className="text-xs break-all">{requestId}</code> : "–"],
  ];
  return (
    <div className="space-y-3">
      <dl className="grid gap-x-4 gap-y-1 text-sm sm:grid-cols-[8rem_minmax(0,1fr)]">
        {facts.map(([label, value]) => (
          <div key={label} className="contents">
            <dt className="text-muted">{label}</dt>
            <dd className="min-w-0 break-words">{value}</dd>
          </div>
        ))}
      </dl>
      {Object.keys(data).length > 0 && <CodeBlock name="data.json" content={JSON.stringify(data, null, 2)} />}
    </div>
  );
}

/** A value that leads to all events with it. */
function Filtered({ name, value, text }: { name: FilterName; value: string; text?: string | null }) {
  const { t } = useTranslation();
  return (
    <Link
      to={buildAuditAddress({ [name]: value })}
      title={t("audit.only")}
      className="break-all text-accent-ink hover:underline"
    >
      {escapeName(text ? `${text} (${value})` : value)}
    </Link>
  );
}

type FilterName = "project" | "actor" | "action" | "target" | "token" | "address";

function Target({ target }: { target: string }) {
  const { t } = useTranslation();
  return (
    <span className="flex flex-wrap gap-x-3">
      <Filtered name="target" value={target} />
      {target.startsWith("task-") && (
        <TextLink to={`/training/${encodeURIComponent(target)}`}>{t("audit.openTask")}</TextLink>
      )}
    </span>
  );
}
