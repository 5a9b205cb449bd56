import { Toaster } from "sonner";
import { useTheme } from "./theme";

export function Notices() {
  return <Toaster theme={useTheme()} position="top-center" richColors closeButton />;
}
