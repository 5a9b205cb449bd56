// Prints what a first visit downloads before any page's own chunk, in the language of the longest texts, and fails above
// the budget.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BUDGET_KB = 180;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL(".vite/manifest.json", dist)));
const kb = (file) => gzipSync(readFileSync(new URL(file, dist))).length / 1000;

function closure(key, seen = new Set()) {
  if (!seen.has(key)) {
    seen.add(key);
    for (const next of manifest[key].imports ?? []) closure(next, seen);
  }
  return seen;
}

const languages = Object.keys(manifest).filter((key) => /^src\/i18n\/..\.ts$/.test(key));
const [longest] = languages.sort((a, b) => kb(manifest[b].file) - kb(manifest[a].file));
const chunks = [...closure(longest, closure("index.html"))].map((key) => manifest[key]);
const files = ["index.html", "theme.js", ...chunks.flatMap((chunk) => [chunk.file, ...(chunk.css ?? [])])];
const total = files.reduce((sum, file) => sum + kb(file), 0);
console.log(`first load: ${total.toFixed(1)} kB gzip of ${BUDGET_KB} (${files.length} files)`);
for (const [key, chunk] of Object.entries(manifest)) {
  if (chunk.isDynamicEntry) console.log(`  ${key}: ${kb(chunk.file).toFixed(1)} kB gzip`);
}
if (total > BUDGET_KB) process.exit(1);
