"""Every page can be found, and every link leads somewhere."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def pages(root: Path) -> list[Path]:
    """The Markdown of the project: what is tracked, and what soon will be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository")
    return [root / name for name in names if (root / name).is_file()]


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """(file, anchor) of every link that stays within the project."""
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            yield Path(os.path.normpath(page.parent / name)) if name else page, anchor


def anchors(page: Path) -> set[str]:
    """As hosts of repositories make them of headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(FENCE.sub("", page.read_text("utf-8")))
    }


def test_every_page_of_the_documentation_is_in_its_index(root: Path) -> None:
    index = root / "docs" / "README.md"
    listed = {target for target, _ in links(index)}
    wanted = {page for page in pages(root) if page.is_relative_to(root / "docs") and page.parent.name != "decisions"}
    assert sorted(str(page.relative_to(root)) for page in wanted - listed - {index}) == []


def test_every_link_leads_to_a_page_and_a_heading_of_the_project(root: Path) -> None:
    broken = [
        f"{page.relative_to(root)}: {target.name}{anchor and f'#{anchor}'}"
        for page in pages(root)
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert broken == []


def test_every_decision_has_a_number_of_its_own(root: Path) -> None:
    numbers = sorted(path.name[:4] for path in (root / "docs" / "decisions").glob("*.md"))
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
