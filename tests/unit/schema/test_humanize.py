"""The console's texts of counts and sizes are the platform's: vitest reads the same file."""

import json
from pathlib import Path

from fermi.schema import humanize


def test_counts_and_sizes_are_formatted_as_in_the_console(root: Path) -> None:
    cases = json.loads((root / "tests/shared/figures.json").read_text())
    assert [[number, humanize.format_count(number)] for number, _ in cases["counts"]] == cases["counts"]
    assert [[number, humanize.format_bytes(number)] for number, _ in cases["sizes"]] == cases["sizes"]
