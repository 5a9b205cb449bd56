import type code from "./parts/code.zh";
import type files from "./parts/files.zh";
import type groups from "./parts/groups.zh";
import type hosted from "./parts/hosted.zh";
import type notices from "./parts/notices.zh";
import type overview from "./parts/overview.zh";
import type prices from "./parts/prices.zh";
import type reservations from "./parts/reservations.zh";
import type terminal from "./parts/terminal.zh";
import type timeline from "./parts/timeline.zh";
import type usage from "./parts/usage.zh";

/**
 * Texts that a first visit does not load. The part `usage` is what is said under `usage.…`, in `parts/usage.zh.ts` and
 * `parts/usage.en.ts`; whoever says it is imported by `withTexts(import("…"), "usage")`. `parts.test.ts` finds what says
 * something that its import does not load.
 */
export interface Parts {
  code: typeof code;
  files: typeof files;
  groups: typeof groups;
  hosted: typeof hosted;
  notices: typeof notices;
  overview: typeof overview;
  prices: typeof prices;
  reservations: typeof reservations;
  terminal: typeof terminal;
  timeline: typeof timeline;
  usage: typeof usage;
}

export type Part = keyof Parts;
