"""There is one list of languages; what else names them follows it."""

import re
from pathlib import Path

from fermi import messages


def test_the_console_speaks_the_platforms_languages_and_begins_with_its_default(root: Path) -> None:
    source = (root / "frontend/src/i18n/index.ts").read_text("utf-8")
    [spoken] = re.findall(r"^const CATALOGUES = \{ (.*) \};$", source, re.MULTILINE)
    assert spoken.split(", ") == list(messages.LANGUAGES)
    assert next(iter(messages.LANGUAGES)) == messages.DEFAULT


def test_a_tag_leads_to_its_language() -> None:
    tags = ("zh", "zh-CN", "zh-hans", "zh_CN.UTF-8", "zh.UTF-8", "EN-gb", "en", "de_DE", "C", "")
    assert [messages.known(tag) for tag in tags] == ["zh"] * 5 + ["en"] * 2 + [""] * 3
