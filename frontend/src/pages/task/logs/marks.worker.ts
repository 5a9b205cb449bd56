import type { MatchRequest, MatchResponse } from "./marker";
import { findMatches } from "./spans";

addEventListener("message", ({ data: { id, text, expression } }: MessageEvent<MatchRequest>) => {
  postMessage({ id, spans: findMatches(text, expression) } satisfies MatchResponse);
});
