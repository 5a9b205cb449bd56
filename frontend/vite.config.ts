import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The platform sees the host that the page's origin names, or it would take each change for a forged one.
const platform = { target: process.env.FERMI_URL ?? "http://127.0.0.1:8000", changeOrigin: false };

export default defineConfig({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: {
    proxy: {
      ...Object.fromEntries(["/_allauth", "/auth/", "/admin/", "/static/"].map((path) => [path, platform])),
      "/api": { ...platform, ws: true },
      // To the platform's own port, where its doors are.
      "^/environments/[^/]+/open": { ...platform, changeOrigin: true },
    },
  },
  build: { manifest: true },
  test: {
    environment: "jsdom",
    environmentOptions: { jsdom: { url: "http://fermi.test/" } },
    setupFiles: ["src/test/setup.ts"],
    maxWorkers: "100%", // without it one core is left free: of two that is half
    testTimeout: 60_000,
    include: ["src/**/*.test.{ts,tsx}"],
  },
});
