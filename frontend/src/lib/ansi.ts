import Anser from "anser";

/** Part of a text that a program printed in colours or decorated. Start and end in UTF-16 units. */
export interface ColouredRun {
  from: number;
  to: number;
  /** "r, g, b". */
  foreground?: string | undefined;
  background?: string | undefined;
  /** The page's own foreground and background are exchanged. */
  reverse: boolean;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  strikethrough: boolean;
}

/** The most runs of one line: each is an element of the page. */
export const MAX_RUNS = 400;

/* As fermi.terminal_codes has it: CSI, control strings (OSC and the like), and other sequences (ECMA-48, 5.4 and 5.6). */
const SEQUENCES =
  // eslint-disable-next-line no-control-regex
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|[PX\]^_][^\u0007\u001b\n]*(?:\u0007|\u001b\\)|[ -/]*[0-Z\\`-~])/g;
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
// eslint-disable-next-line no-control-regex
const COLOUR = /^\u001b\[[0-9;:]*m$/;
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/;

/** Returns the text without escape sequences and control characters other than the tab and the line feed. */
export function removeCodes(text: string): string {
  return HIDDEN.test(text) ? text.replace(SEQUENCES, "").replace(CONTROLS, "") : text;
}

/**
 * Returns the parts of `removeCodes(text)` that are coloured or decorated, by the SGR codes in `text`. Colours do not go
 * over the end of a line: what a line looks like must not depend on where reading began.
 */
export function parseColours(text: string): ColouredRun[] {
  if (!text.includes("\u001b[")) return [];
  // Anser reads semicolons only; `38:2::r:g:b` has an empty place for the colour space.
  const codes = text
    .replace(SEQUENCES, (code) => (COLOUR.test(code) ? code.replace("2::", "2;").replaceAll(":", ";") : ""))
    .split("\u001b[")
    .map((part) => part.replace(CONTROLS, ""))
    .join("\u001b[");
  const runs: ColouredRun[] = [];
  let from = 0;
  for (const part of Anser.ansiToJson(codes, { remove_empty: true })) {
    const to = from + part.content.length;
    const has = (name: (typeof part.decorations)[number]) => part.decorations.includes(name);
    // Anser exchanges the colours itself. It writes its own default background without spaces.
    const reverse = part.bg === "255,255,255" && part.fg === "0, 0, 0";
    const run = {
      from,
      to,
      foreground: (!reverse && part.fg) || undefined,
      background: (!reverse && part.bg) || undefined,
      reverse,
      bold: has("bold"),
      dim: has("dim"),
      italic: has("italic"),
      underline: has("underline"),
      strikethrough: has("strikethrough"),
    };
    if (part.fg || part.bg || part.decorations.length > 0) runs.push(run);
    if (runs.length === MAX_RUNS) break;
    from = to;
  }
  return runs;
}

const BLACK = "0, 0, 0";
const WHITE = "255, 255, 255";
/** WCAG 2.2, 1.4.3: the least contrast of text. */
const MIN_CONTRAST = 4.5;

/** Returns the colour in which a text can be read on a background: its own where the contrast is enough. */
export function chooseReadable(foreground: string | undefined, background: string): string {
  if (foreground && getContrast(foreground, background) >= MIN_CONTRAST) return foreground;
  return getContrast(BLACK, background) >= getContrast(WHITE, background) ? BLACK : WHITE;
}

/** Returns the contrast of two colours, 1 to 21 (WCAG 2.2, "contrast ratio"). */
export function getContrast(one: string, other: string): number {
  const [low = 0, high = 0] = [getLuminance(one), getLuminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** Returns the relative luminance, 0 to 1 (WCAG 2.2). */
function getLuminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = colour.split(",").map((part) => {
    const share = Number(part) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
