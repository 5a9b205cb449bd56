import type { MatchRequest, MatchResponse } from "./match-finder";
import { findMatches } from "./matches";

addEventListener("message", ({ data: { id, text, expression } }: MessageEvent<MatchRequest>) => {
  postMessage({ id, spans: findMatches(text, expression) } satisfies MatchResponse);
});
