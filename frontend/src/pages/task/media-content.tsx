import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import type { MediaItem } from "@/api/media";
import { formatNumber } from "@/lib/format";
import { Loading } from "@/ui/errors";

const MAX_CHARACTERS = 20_000;
const MAX_ROWS = 50;
const MAX_COLUMNS = 20;
const MAX_BARS = 200;
/** Bytes that are made text at once: arguments of one call. */
const PIECE = 1 << 14;
/** By the end of the name; the file's own word counts for nothing. */
const IMAGE_TYPES: Record<string, string> = {
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  bmp: "image/bmp",
  svg: "image/svg+xml",
};

interface ContentProps {
  kind: MediaItem["kind"];
  file: Blob;
  path: string;
  label: string;
}

/** A file that the script logged. Its content is untrusted: an image is only ever drawn, all else is text. */
export function MediaContent({ kind, file, path, label }: ContentProps) {
  const { t } = useTranslation();
  const [content, setContent] = useState<string>();
  useEffect(() => {
    let gone = false;
    const read = async () => {
      const text = kind === "image" ? await readDataUrl(file, path) : await file.text();
      if (!gone) setContent(text);
    };
    void read();
    return () => void (gone = true);
  }, [kind, file, path]);
  if (content === undefined) return <Loading />;
  if (kind === "image") return <img src={content} alt={label} className="mx-auto max-h-72 max-w-full rounded" />;
  if (kind === "text") {
    return (
      <pre
        tabIndex={0}
        aria-label={label}
        className="max-h-72 overflow-auto rounded bg-sunken p-2 text-xs break-words whitespace-pre-wrap"
      >
        {content.slice(0, MAX_CHARACTERS)}
        {content.length > MAX_CHARACTERS && `\n… ${t("media.cut")}`}
      </pre>
    );
  }
  const parsed = parseJson(content);
  const shown =
    kind === "table" ? (
      <Table found={parseTable(parsed)} label={label} />
    ) : (
      <Histogram found={parseHistogram(parsed)} label={label} />
    );
  return parsed === undefined ? <p className="py-6 text-center text-sm text-muted">{t("media.unreadable")}</p> : shown;
}

async function readDataUrl(file: Blob, path: string): Promise<string> {
  const type = IMAGE_TYPES[path.split(".").at(-1)?.toLowerCase() ?? ""] ?? "image/png";
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < bytes.length; at += PIECE) binary += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  return `data:${type};base64,${btoa(binary)}`;
}

interface TableContent {
  columns: string[];
  rows: string[][];
  cut: boolean;
}

function Table({ found, label }: { found: TableContent; label: string }) {
  const { t } = useTranslation();
  return (
    <div tabIndex={0} role="group" aria-label={label} className="relative max-h-72 overflow-auto rounded border">
      <table className="w-full text-left text-xs">
        <thead className="sticky top-0 bg-sunken text-muted">
          <tr className="*:px-2 *:py-1 *:font-medium *:whitespace-nowrap">
            {found.columns.map((name, at) => (
              <th key={at} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className="divide-y">
          {found.rows.map((row, at) => (
            <tr key={at} className="*:max-w-60 *:truncate *:px-2 *:py-1">
              {row.map((cell, column) => (
                <td key={column} title={cell}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {found.cut && <p className="px-2 py-1 text-xs text-muted">{t("media.cut")}</p>}
    </div>
  );
}

const WIDTH = 300;
const HEIGHT = 120;

function Histogram({ found, label }: { found: { edges: number[]; counts: number[] }; label: string }) {
  const { edges, counts } = found;
  const [low = 0, high = 0] = [edges[0], edges.at(-1)];
  const most = Math.max(...counts, 1e-12);
  const place = (edge: number) => (high > low ? ((edge - low) / (high - low)) * WIDTH : 0);
  return (
    <div>
      <svg
        role="img"
        aria-label={label}
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        className="h-40 w-full"
      >
        {counts.map((count, at) => {
          const [from, to] = [place(edges[at] ?? low), place(edges[at + 1] ?? high)];
          const height = (Math.max(0, count) / most) * HEIGHT;
          return (
            <rect
              key={at}
              x={from}
              y={HEIGHT - height}
              width={Math.max(0.5, to - from - 0.5)}
              height={height}
              fill="var(--info-ink)"
            />
          );
        })}
      </svg>
      <div aria-hidden className="flex justify-between text-xs text-muted tabular-nums">
        <span>{formatNumber(low)}</span>
        <span>{formatNumber(high)}</span>
      </div>
    </div>
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
const write = (cell: unknown) =>
  typeof cell === "string"
    ? cell
    : typeof cell === "number"
      ? formatNumber(cell)
      : cell == null
        ? ""
        : JSON.stringify(cell);

/** Returns as much of a table as is shown; empty if it is none. */
function parseTable(found: unknown): TableContent {
  const table = isObject(found) ? found : {};
  const [columns, rows] = [list(table["columns"]), list(table["rows"])];
  return {
    columns: columns.slice(0, MAX_COLUMNS).map(write),
    rows: rows.slice(0, MAX_ROWS).map((row) => list(row).slice(0, MAX_COLUMNS).map(write)),
    cut: rows.length > MAX_ROWS || columns.length > MAX_COLUMNS,
  };
}

/** Returns a histogram's numbers; none if it is none. */
function parseHistogram(found: unknown): { edges: number[]; counts: number[] } {
  const histogram = isObject(found) ? found : {};
  const numbers = (value: unknown) => list(value).filter((each): each is number => Number.isFinite(each));
  return {
    edges: numbers(histogram["edges"]).slice(0, MAX_BARS + 1),
    counts: numbers(histogram["counts"]).slice(0, MAX_BARS),
  };
}
