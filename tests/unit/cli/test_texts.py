import ast
import re
import tomllib
from pathlib import Path

import pytest

from fermi.cli import texts
from fermi.cli.registry import COMMANDS
from fermi.client import config
from fermi.client.config import Config

CLI = Path(texts.__file__).parent
CHINESE = tomllib.loads((CLI / "zh.toml").read_text("utf-8"))
PLACE = re.compile(r"\{\w+")


def spoken() -> set[str]:
    """Every sentence the command line can say."""
    found = {entry.summary for entry in COMMANDS.values()}
    for file in CLI.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_":
                match node.args[0]:
                    case ast.Constant(value=str(sentence)):
                        found.add(sentence)
                    case ast.Attribute(attr="summary") | ast.Subscript():
                        pass  # of COMMANDS
                    case other:
                        raise AssertionError(f"{file.name}: {ast.unparse(other)} cannot be translated")
    return found


def test_every_sentence_has_a_translation_and_every_translation_a_sentence() -> None:
    assert spoken() == set(CHINESE)


def test_a_translation_has_the_parts_of_its_sentence() -> None:
    different = {
        sentence
        for sentence, chinese in CHINESE.items()
        if sorted(PLACE.findall(chinese)) != sorted(PLACE.findall(sentence))
    }
    assert not different


@pytest.mark.parametrize(
    ("arguments", "kept", "locale", "language"),
    [
        (["--lang", "en", "list"], "zh", "zh_CN.UTF-8", "en"),
        (["list", "--lang=zh"], "en", "en_US.UTF-8", "zh"),
        (["list"], "en", "zh_CN.UTF-8", "en"),
        (["list"], "", "zh_TW.UTF-8", "zh"),
        (["list"], "", "de_DE.UTF-8", "en"),
        (["list"], "", "C.UTF-8", "zh"),
        (["list"], "", "", "zh"),
        (["submit", "--script", "a.py", "--", "--lang", "en"], "", "zh_CN", "zh"),
        (["list", "--lang"], "", "en_US", "en"),
    ],
)
def test_the_language_is_that_of_the_flag_the_file_or_the_locale(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], kept: str, locale: str, language: str
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", locale)
    if kept:
        config.save(Config(language=kept))
    assert texts.choose(arguments) == language
