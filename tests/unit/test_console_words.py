"""The console has words of its own for every option that a framework offers."""

import re
from pathlib import Path

import pytest

from fermi.launch import registry


@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_framework_option_has_a_word_in_the_console(root: Path, language: str) -> None:
    source = (root / f"frontend/src/i18n/{language}.ts").read_text("utf-8")
    words = re.search(r"^    option: \{(.*?)^    \}", source, re.MULTILINE | re.DOTALL)
    assert words
    known = set(re.findall(r"^ +(\w+):", words[1], re.MULTILINE))
    offered = {
        name
        for framework in map(registry.framework, registry.FRAMEWORKS)
        for name, rule in framework.OPTIONS["properties"].items()
        if "title" not in rule
    }
    assert offered - known == set()
