// Prints what a first visit downloads before any page's own chunk, in the language of the longest texts, and fails above
// the budget; and fails where a page is of many files: a browser asks for six at a time, and far away each time counts.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BUDGET_KB = 180;
const MAX_FILES = 6;
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
const known = closure("index.html");
const many = [];
for (const [key, chunk] of Object.entries(manifest)) {
  if (!chunk.isDynamicEntry) continue;
  const further = [...closure(key)].filter((each) => !known.has(each));
  const size = further.reduce((sum, each) => sum + kb(manifest[each].file), 0);
  console.log(`  ${key}: ${size.toFixed(1)} kB gzip (${further.length} files)`);
  if (further.length > MAX_FILES && /^src\/pages\/[^/]+\/index\.tsx$/.test(key)) many.push(key);
}
if (many.length > 0)
  console.error(`of more than ${MAX_FILES} files: ${many.join(", ")} (vite.config.ts: codeSplitting)`);
if (total > BUDGET_KB || many.length > 0) process.exit(1);
