"""Texts in both languages keep to the terms of docs/terms.md."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CELL = re.compile(r"(?<!\\)\|")
SOURCES = {
    "en": ("frontend/src/i18n/en.ts", "frontend/src/i18n/pages/en.ts", "platform/fermi/messages/en/*.toml"),
    "zh": ("frontend/src/i18n/zh.ts", "frontend/src/i18n/pages/zh.ts", "platform/fermi/messages/zh/*.toml",
           "docs/zh/**/*.md", "README.zh.md"),
}  # fmt: skip
NAMES = re.compile(r"\{+ ?\w+|^\s*\w+(?::| = )|^\[.*")
"""Parameters, keys and codes: they are not shown."""
LANGUAGE = re.compile(r"^\[(?:[\w-]+\.)?(?P<language>en|zh)\b")


def read_terms(root: Path, language: str) -> Iterator[re.Pattern[str]]:
    """Yield each expression that docs/terms.md forbids in texts of `language`."""
    column = {"en": 2, "zh": 4}[language]
    for line in (root / "docs/terms.md").read_text("utf-8").splitlines():
        cells = CELL.split(line)
        if len(cells) == 6:
            for found in re.findall(r"`([^`]+)`", cells[column]):
                found = found.replace("\\|", "|")
                yield re.compile(rf"\b(?:{found})\b", re.IGNORECASE) if language == "en" else re.compile(found)


def read_lines(root: Path, language: str) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of each line that people read in `language`. Texts of a plug-in hold all their languages."""
    for pattern in SOURCES[language]:
        for path in sorted(root.glob(pattern)):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if not line.lstrip().startswith(("//", "/*", "*", "#")) or path.suffix == ".md":
                    yield f"{path.relative_to(root)}:{number}", line
    plugins = [root / "platform/procguard/texts.toml"]
    for pattern in (
        "engines/**/*.toml",
        "frameworks/**/*.toml",
        "diagnosis/**/*.toml",
        "planning/*.toml",
        "cli/**/*.toml",
    ):
        found = sorted((root / "platform/fermi").glob(pattern))
        assert found, pattern
        plugins += found
    for path in plugins:
        current = ""
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if line.startswith("["):
                section = LANGUAGE.match(line)
                current = section["language"] if section else ""
            if current == language:
                yield f"{path.relative_to(root)}:{number}", line


def find_words(root: Path, language: str) -> list[str]:
    terms = list(read_terms(root, language))
    assert len(terms) > 10
    return [f"{place}: {found[0]!r}" for place, line in read_lines(root, language)
            for term in terms if (found := term.search(NAMES.sub(" ", line)))]  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh"])
def test_texts_use_the_terms(root: Path, language: str) -> None:
    found = find_words(root, language)
    assert not found, "docs/terms.md has another word for:\n" + "\n".join(found)
