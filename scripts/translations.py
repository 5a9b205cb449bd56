"""Which Chinese pages have fallen behind their English ones (`make check`).

A page `docs/zh/X.md` says in Chinese what `docs/X.md` says, heading by heading, and `README.zh.md` what `README.md`
does. `docs/zh/in-step.json` remembers each English section (its heading, and a digest of its text) that the Chinese
page was last brought in step with. So what changed since is named by page and heading:

    python scripts/translations.py                       names what is behind, or out of shape; exit code 1 if any is
    python scripts/translations.py docs/zh/slurm.md …    these are in step again, says who has read them

In shape means: the same headings, one below the other, and as many code blocks and tables as in English; and a link
leads to the Chinese page where there is one.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEMORY = "docs/zh/in-step.json"
FENCE = re.compile(r"^ *```")
LINK = re.compile(r"\]\(([^)#\s:]+\.md)")
TABLE = re.compile(r"^ *\|[-:| ]+\|$")

Sections = Mapping[str, str]  # heading ("" = what comes before the first) -> digest


def pairs(root: Path) -> Iterator[tuple[str, str]]:
    """(Chinese page, English page) by their paths in the project."""
    yield "README.zh.md", "README.md"
    for page in sorted((root / "docs" / "zh").rglob("*.md")):
        yield str(page.relative_to(root)), f"docs/{page.relative_to(root / 'docs' / 'zh')}"


def lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is inside of a code block (its fences count as that)."""
    inside = False
    for line in text.splitlines():
        fence = bool(FENCE.match(line))
        yield line, inside or fence
        inside ^= fence


def sections(text: str) -> dict[str, str]:
    heading, parts = "", {"": [""]}
    for line, code in lines(text):
        if line.startswith("#") and not code:
            heading = line.lstrip("#").strip()
            parts.setdefault(heading, [])
        parts[heading].append(line.rstrip())
    return {name: hashlib.sha256("\n".join(said).strip().encode()).hexdigest()[:12] for name, said in parts.items()}


def shape(text: str) -> dict[str, object]:
    """What two pages that say the same have in common, whatever their language."""
    prose = [line for line, code in lines(text) if not code]
    return {
        "headings": [len(line) - len(line.lstrip("#")) for line in prose if line.startswith("#")],
        "code blocks": sum(bool(FENCE.match(line)) for line, _ in lines(text)) // 2,
        "tables": sum(bool(TABLE.match(line)) for line in prose),
    }


def in_english(root: Path, page: str, text: str) -> list[str]:
    """Where the Chinese `page` links to an English one that is there in Chinese too; the other language of the page
    itself may be linked."""
    chinese = {os.path.normpath(root / english): name for name, english in pairs(root) if name != page}
    targets = [os.path.normpath((root / page).parent / target) for target in LINK.findall(text)]
    return sorted({chinese[target] for target in targets if target in chinese})


def changed(before: Sections, now: Sections) -> list[str]:
    """In words, what a translator has to look at."""
    other = [name or "the beginning" for name in now if before.get(name, now[name]) != now[name]]
    return [
        *(f"new in English: {name!r}" for name in now if name not in before),
        *(f"changed in English: {name!r}" for name in other),
        *(f"no longer in English: {name!r}" for name in before if name not in now),
    ]


def behind(root: Path) -> list[str]:
    """Everything that is wrong, page by page."""
    memory, found = remembered(root), []
    for chinese, english in pairs(root):
        if not (root / english).is_file():
            found.append(f"{chinese}: there is no {english}")
            continue
        here, there = ((root / name).read_text("utf-8") for name in (chinese, english))
        found += [f"{chinese}: {what}" for what in changed(memory.get(chinese, {}), sections(there))]
        found += [f"{chinese}: {target} is there in Chinese" for target in in_english(root, chinese, here)]
        ours, theirs = shape(here), shape(there)
        differ = (what for what in ours if ours[what] != theirs[what])
        found += [f"{chinese}: {what}: {ours[what]}, in {english}: {theirs[what]}" for what in differ]
    return found + [f"{MEMORY}: there is no {name}" for name in memory if not (root / name).is_file()]


def remembered(root: Path) -> dict[str, dict[str, str]]:
    path = root / MEMORY
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def in_step(root: Path, names: list[str]) -> None:
    english, memory = dict(pairs(root)), remembered(root)
    for name in names:
        page = str((root / name).resolve().relative_to(root.resolve()))
        if page not in english:
            sys.exit(f"{page} is no Chinese page: expected README.zh.md or docs/zh/….md")
        memory[page] = sections((root / english[page]).read_text("utf-8"))
    kept = {name: memory[name] for name in sorted(memory) if (root / name).is_file()}
    (root / MEMORY).write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", "utf-8")


def main(names: list[str]) -> int:
    if names:
        in_step(ROOT, names)
    found = behind(ROOT)
    print("\n".join(found) or "all Chinese pages are in step")
    if found:
        print(f"read the sections, bring the Chinese page in step, then: python {Path(__file__).name} PAGE …")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
