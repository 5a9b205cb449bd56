import { cleanup, configure } from "@testing-library/react";
import { afterAll, afterEach, beforeAll, vi } from "vitest";
import { setLanguage, startLanguage } from "@/i18n";
import { FakeEventSource } from "./event-source";
import { platformHandlers } from "./platform";

/** What jsdom does not have and the console, or a library of its, uses. */
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
/** Nothing is laid out: without a height, lists that render what is in sight would render nothing. */
Object.defineProperty(Element.prototype, "clientHeight", { get: () => 800 });

configure({ asyncUtilTimeout: 20_000 }); // a busy machine is no failure
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
