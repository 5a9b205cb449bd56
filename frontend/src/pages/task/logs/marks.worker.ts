import type { Asked, Answered } from "./marker";
import { matches } from "./spans";

addEventListener("message", ({ data: { id, text, expression } }: MessageEvent<Asked>) => {
  postMessage({ id, spans: matches(text, expression) } satisfies Answered);
});
