import { lazy, Suspense } from "react";
import { useTheme } from "./theme";

const Toaster = lazy(async () => ({ default: (await import("sonner")).Toaster }));

export function ToastArea() {
  const theme = useTheme();
  return (
    <Suspense>
      <Toaster theme={theme} position="top-center" richColors closeButton />
    </Suspense>
  );
}
