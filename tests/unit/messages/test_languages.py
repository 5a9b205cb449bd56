"""There is one list of languages; what else names them follows it."""

import re
from pathlib import Path

from fermi import messages


def test_each_language_has_texts_and_a_console_catalogue(root: Path) -> None:
    folders = {path.name for path in messages.FOLDER.iterdir() if any(path.glob("*.toml"))}
    catalogues = {path.stem for path in (root / "frontend/src/i18n").glob("??.ts")}
    assert folders == catalogues == set(messages.LANGUAGES)


def test_the_console_has_the_platforms_default_and_fallback(root: Path) -> None:
    source = (root / "frontend/src/i18n/index.ts").read_text("utf-8")
    known = dict(re.findall(r'^const (DEFAULT|FALLBACK) = "(\w+)";$', source, re.MULTILINE))
    assert known == {"DEFAULT": messages.DEFAULT, "FALLBACK": messages.FALLBACK}


def test_a_language_tag_selects_its_language() -> None:
    tags = ("zh", "zh-CN", "zh-hans", "zh_CN.UTF-8", "zh.UTF-8", "EN-gb", "en", "de_DE", "C", "")
    assert [messages.match_language(tag) for tag in tags] == ["zh"] * 5 + ["en"] * 2 + [""] * 3
