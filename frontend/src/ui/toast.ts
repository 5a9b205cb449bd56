import type { ExternalToast } from "sonner";

/** The library that draws toasts loads after the page. */
const showToast = (how: "success" | "error") => (text: string, more?: ExternalToast) =>
  void import("sonner").then(({ toast }) => toast[how](text, more));

export const toast = { success: showToast("success"), error: showToast("error") };
