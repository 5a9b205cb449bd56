import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const platform = process.env.FERMI_URL ?? "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: { proxy: Object.fromEntries(["/api", "/_allauth", "/auth"].map((path) => [path, platform])) },
  build: { manifest: true },
  test: {
    environment: "jsdom",
    environmentOptions: { jsdom: { url: "http://fermi.test/" } },
    setupFiles: ["src/test/setup.ts"],
    testTimeout: 60_000,
    include: ["src/**/*.test.{ts,tsx}"],
  },
});
