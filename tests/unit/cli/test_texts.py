import ast
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi import messages
from fermi.cli import fields, texts
from fermi.cli.commands import quickstart
from fermi.cli.registry import COMMANDS, SUBCOMMANDS, make_summary_code
from fermi.client import config
from fermi.client.config import Config
from fermi.export.request import ExportRequest

CLI = Path(texts.__file__).parent
BESIDE = {
    code: entry["en"]["message"]
    for path in [*texts.COMMANDS_FOLDER.glob("*.toml"), CLI / "flags.toml"]
    for code, entry in tomllib.loads(path.read_text("utf-8")).items()
}
ENGLISH = {**tomllib.loads((messages.FOLDER / "en" / "cli.toml").read_text("utf-8")), **BESIDE}


def spoken() -> Iterator[tuple[str, set[str]]]:
    """Every sentence that the command line can say, and the parts that it gets where they are written there."""
    yield from ((make_summary_code(name), set()) for name in COMMANDS)
    yield from ((make_summary_code(f"{name} {one}"), set()) for name, inner in SUBCOMMANDS.items() for one in inner)
    yield from ((field.code, set()) for field in fields.list_fields(ExportRequest))
    for file in CLI.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_":
                match node.args[0]:
                    case ast.Constant(value=str(code)):
                        yield code, {word.arg for word in node.keywords if word.arg}
                    case ast.Call(func=ast.Name(id="make_summary_code")) | ast.Attribute(attr="code"):
                        pass
                    case other:
                        raise AssertionError(f"{file.name}: {ast.unparse(other)} is no code")


def test_every_code_has_a_text_and_every_text_a_code() -> None:
    assert {code for code, _ in spoken()} == set(ENGLISH)


def test_a_text_beside_a_command_belongs_to_it() -> None:
    shared = tomllib.loads((messages.FOLDER / "en" / "cli.toml").read_text("utf-8"))
    assert BESIDE.keys() & shared.keys() == set()
    for path in texts.COMMANDS_FOLDER.glob("*.toml"):
        codes = tomllib.loads(path.read_text("utf-8"))
        own = [make_summary_code(name) for name, entry in COMMANDS.items() if entry.module == path.stem]
        module = path.with_suffix(".py").read_text("utf-8")
        assert [code for code in codes if code not in own and f'"{code}"' not in module] == []


def test_a_text_has_its_parameters() -> None:
    taken = {
        code: {name for _, name, _, _ in string.Formatter().parse(ENGLISH[code]) if name}
        for code, parts in spoken()
        if parts
    }
    assert {code: parts for code, parts in spoken() if parts} == taken


def test_a_missing_translation_falls_back_to_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LANGUAGES", {**messages.LANGUAGES, "xx": messages.LANGUAGES["en"]})
    assert messages.render_sentence("cli", "TASK_CREATED", "xx", id="task-1") == "Created task-1."


def test_a_missing_text_is_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "report_fault", lambda *_: None)
    assert messages.render_sentence("cli", "NO_SUCH_CODE", "zh") == "NO_SUCH_CODE"
    assert messages.render_sentence("cli", "TASK_CREATED", "en", other="task-1") == f"Created {messages.MISSING_VALUE}."


def test_every_guide_has_a_text() -> None:
    for language in messages.LANGUAGES:
        assert list(messages.load_guide("quickstart", language)) == list(quickstart.ENTRY_TEXTS)


CHINESE, ENGLISH_US = {"LANG": "zh_CN.UTF-8"}, {"LANG": "en_US.UTF-8"}


@pytest.mark.parametrize(
    ("arguments", "kept", "locale", "language"),
    [
        (["--lang", "en", "list"], "zh", CHINESE, "en"),
        (["list", "--lang=zh"], "en", ENGLISH_US, "zh"),
        (["list"], "en", CHINESE, "en"),
        (["list"], "zh", {"LC_ALL": "C"}, "zh"),
        (["submit", "--script", "a.py", "--", "--lang", "en"], "", {"LANG": "zh_CN"}, "zh"),
        (["list", "--lang"], "", ENGLISH_US, "en"),
        *((["list"], "", {"LANG": name}, "zh") for name in ("zh_TW.UTF-8", "zh_CN.GB18030", "zh@pinyin", "zh")),
        *((["list"], "", {"LANG": name}, "en") for name in ("C", "POSIX", "C.UTF-8", "de_DE.UTF-8", "", "no name")),
        (["list"], "", {}, "en"),
        (["list"], "", {"LC_ALL": "C", "LC_MESSAGES": "zh_CN.UTF-8", **CHINESE}, "en"),
        (["list"], "", {"LC_ALL": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8", **ENGLISH_US}, "zh"),
        (["list"], "", {"LC_ALL": "", "LC_MESSAGES": "zh_CN.UTF-8", **ENGLISH_US}, "zh"),
        (["list"], "", {"LC_CTYPE": "zh_CN.UTF-8", **ENGLISH_US}, "en"),
    ],
)
def test_the_language_comes_from_flag_file_or_locale_in_posix_order(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], kept: str, locale: dict[str, str], language: str
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    if kept:
        config.save_config(Config(language=kept))
    assert texts.choose_language(arguments) == language
