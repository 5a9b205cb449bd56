"""Report Chinese pages that are older than their English ones (`make check`).

A page `docs/zh/X.md` translates `docs/X.md` heading by heading, and `README.zh.md` translates `README.md`.
`docs/zh/in-step.json` has, for each English section (its heading, and a digest of its text), the version that was
translated last. So what has changed since is named by page and heading:

    python scripts/translations.py                       name outdated sections and wrong structure; exit code 1 if any
    python scripts/translations.py docs/zh/slurm.md …    mark these pages as up to date, after reading them

Correct structure means: the same headings, one below the other, and as many code blocks and tables as in English; and a
link leads to the Chinese page where there is one.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEMORY_FILE = "docs/zh/in-step.json"
FENCE_PATTERN = re.compile(r"^ *```")
LINK_PATTERN = re.compile(r"\]\(([^)#\s:]+\.md)")
TABLE_BLOCK_PATTERN = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A table that `scripts/doc_tables.py` generates in each language: a change of it is nothing to translate."""
TABLE_PATTERN = re.compile(r"^ *\|[-:| ]+\|$")

Sections = Mapping[str, str]  # heading ("" = what comes before the first) -> digest


def list_pairs(root: Path) -> Iterator[tuple[str, str]]:
    """Return (Chinese page, English page) by their paths in the project."""
    yield "README.zh.md", "README.md"
    for page in sorted((root / "docs" / "zh").rglob("*.md")):
        yield str(page.relative_to(root)), f"docs/{page.relative_to(root / 'docs' / 'zh')}"


def iterate_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is inside a code block (its fences count as inside)."""
    inside = False
    for line in text.splitlines():
        fence = bool(FENCE_PATTERN.match(line))
        yield line, inside or fence
        inside ^= fence


def split_sections(text: str) -> dict[str, str]:
    heading, parts = "", {"": [""]}
    for line, code in iterate_lines(TABLE_BLOCK_PATTERN.sub(r"\1\3", text)):
        if line.startswith("#") and not code:
            heading = line.lstrip("#").strip()
            parts.setdefault(heading, [])
        parts[heading].append(line.rstrip())
    return {name: hashlib.sha256("\n".join(said).strip().encode()).hexdigest()[:12] for name, said in parts.items()}


def describe_structure(text: str) -> dict[str, object]:
    """Return what two pages with the same content have in common in any language: headings' levels, code blocks,
    tables."""
    prose = [line for line, code in iterate_lines(text) if not code]
    return {
        "headings": [len(line) - len(line.lstrip("#")) for line in prose if line.startswith("#")],
        "code blocks": sum(bool(FENCE_PATTERN.match(line)) for line, _ in iterate_lines(text)) // 2,
        "tables": sum(bool(TABLE_PATTERN.match(line)) for line in prose),
    }


def list_english_links(root: Path, page: str, text: str) -> list[str]:
    """Return the links of the Chinese `page` to English pages that exist in Chinese too; its own English page may be
    linked."""
    chinese = {os.path.normpath(root / english): name for name, english in list_pairs(root) if name != page}
    targets = [os.path.normpath((root / page).parent / target) for target in LINK_PATTERN.findall(text)]
    return sorted({chinese[target] for target in targets if target in chinese})


def list_changes(before: Sections, now: Sections) -> list[str]:
    """Return sentences that tell a translator what to update."""
    other = [name or "the beginning" for name in now if before.get(name, now[name]) != now[name]]
    return [
        *(f"new in English: {name!r}" for name in now if name not in before),
        *(f"changed in English: {name!r}" for name in other),
        *(f"no longer in English: {name!r}" for name in before if name not in now),
    ]


def list_stale(root: Path) -> list[str]:
    """Return all problems, page by page."""
    memory, found = load_memory(root), []
    for chinese, english in list_pairs(root):
        if not (root / english).is_file():
            found.append(f"{chinese}: there is no {english}")
            continue
        here, there = ((root / name).read_text("utf-8") for name in (chinese, english))
        found += [f"{chinese}: {what}" for what in list_changes(memory.get(chinese, {}), split_sections(there))]
        found += [f"{chinese}: {target} is there in Chinese" for target in list_english_links(root, chinese, here)]
        ours, theirs = describe_structure(here), describe_structure(there)
        differ = (what for what in ours if ours[what] != theirs[what])
        found += [f"{chinese}: {what}: {ours[what]}, in {english}: {theirs[what]}" for what in differ]
    return found + [f"{MEMORY_FILE}: there is no {name}" for name in memory if not (root / name).is_file()]


def load_memory(root: Path) -> dict[str, dict[str, str]]:
    path = root / MEMORY_FILE
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def record_translated(root: Path, names: list[str]) -> None:
    english, memory = dict(list_pairs(root)), load_memory(root)
    for name in names:
        page = str((root / name).resolve().relative_to(root.resolve()))
        if page not in english:
            sys.exit(f"{page} is no Chinese page: expected README.zh.md or docs/zh/….md")
        memory[page] = split_sections((root / english[page]).read_text("utf-8"))
    kept = {name: memory[name] for name in sorted(memory) if (root / name).is_file()}
    (root / MEMORY_FILE).write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", "utf-8")


def main(names: list[str]) -> int:
    if names:
        record_translated(ROOT, names)
    found = list_stale(ROOT)
    print("\n".join(found) or "all Chinese pages are in step")
    if found:
        print(f"read the sections, bring the Chinese page in step, then: python {Path(__file__).name} PAGE …")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
