import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The platform sees the host that the page's origin names, or it would take each change for a forged one.
const platform = { target: process.env.FERMI_URL ?? "http://127.0.0.1:8000", changeOrigin: false };

/** What several pages may use, but for what is large and few use. */
const SHARED = /src\/(api|app|lib|ui)\/(?!terminal|machines|hosted|palette)|src\/pages|lucide-react|radix-ui/;
/** What two pages around runs have in common, each a small file otherwise. */
const RUNS_SHARED =
  /src\/pages\/runs\/(columns|note-dialog|tag-cell)|src\/ui\/(bulk-results|markdown|menu|metric-picker)|src\/lib\/(download|markdown)|src\/api\/compare|nfiniteQuery/;
/** What two pages around accounts have in common. */
const ACCOUNTS_SHARED = /src\/ui\/token-row|src\/api\/(account|limits|people)|src\/pages\/settings/;

export default defineConfig({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: {
    proxy: {
      ...Object.fromEntries(
        ["/_allauth", "/auth/", "/admin/", "/static/", "/.well-known/"].map((path) => [path, platform]),
      ),
      "/api": { ...platform, ws: true },
      "^/oauth/(token|revoke|clients|device/code)$": platform,
      // To the platform's own port, where its doors are.
      "^/environments/[^/]+/open": { ...platform, changeOrigin: true },
    },
  },
  build: {
    manifest: true,
    rolldownOptions: {
      output: {
        codeSplitting: {
          // A browser asks for six files at a time: a page is to be a few files, and not one for each thing that pages
          // share. What one page alone uses stays with it, and so do the terminal and the charts.
          groups: [
            { name: "vendor", test: /node_modules/, tags: ["$initial"], priority: 3 },
            { name: "frame", test: /src/, tags: ["$initial"], priority: 3 },
            { name: "charts", test: /uplot|src\/(api|ui)\/telemetry/, minShareCount: 2, priority: 2.5 },
            { name: "shared", test: SHARED, minShareCount: 3, priority: 2 },
            { name: "accounts-shared", test: ACCOUNTS_SHARED, minShareCount: 2, priority: 1 },
            { name: "runs-shared", test: RUNS_SHARED, minShareCount: 2, priority: 1 },
          ],
        },
      },
    },
  },
  test: {
    environment: "jsdom",
    environmentOptions: { jsdom: { url: "http://fermi.test/" } },
    setupFiles: ["src/test/setup.ts"],
    maxWorkers: "100%", // without it one core is left free: of two that is half
    testTimeout: 60_000,
    include: ["src/**/*.test.{ts,tsx}"],
  },
});
