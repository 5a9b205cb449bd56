import { cleanup, configure } from "@testing-library/react";
import { afterAll, afterEach, beforeAll, vi } from "vitest";
import { setLanguage, startLanguage } from "@/i18n";
import { FakeEventSource } from "./event-source";
import { platformHandlers } from "./platform";

/** What jsdom lacks and the console or its libraries use. */
const nothing = () => undefined;
vi.stubGlobal("EventSource", FakeEventSource);
vi.stubGlobal(
  "ResizeObserver",
  class {
    observe = nothing;
    unobserve = nothing;
    disconnect = nothing;
  },
);
vi.stubGlobal("matchMedia", () => ({
  matches: false,
  addEventListener: nothing,
  removeEventListener: nothing,
}));
Element.prototype.scrollIntoView = nothing;
/** jsdom has no layout: without a height, virtual lists would render nothing. */
Object.defineProperty(Element.prototype, "clientHeight", { get: () => 800 });

configure({ asyncUtilTimeout: 20_000 }); // busy machines are slow
localStorage.setItem("fermi.language", "zh"); // jsdom asks for English
await startLanguage();
beforeAll(() => platformHandlers.listen({ onUnhandledRequest: "error" }));
afterEach(async () => {
  cleanup();
  sessionStorage.clear();
  platformHandlers.resetHandlers();
  FakeEventSource.opened.length = 0;
  await setLanguage("zh");
});
afterAll(() => platformHandlers.close());
