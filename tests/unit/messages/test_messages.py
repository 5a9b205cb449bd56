"""Every code that is raised anywhere has a text in both languages, and both texts take the same parameters. A package
brings its own."""

import ast
import logging
import string
import sys
import tomllib
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from apps.training.states.reasons import CAUSES
from fermi import messages
from fermi.cli import texts
from fermi.diagnosis import rules
from fermi.planning import plugins

ARGUMENT = {"ApiError": 1, "Problem": 1, "DataError": 0, "Cause": 0, "render_text": 0, "UnknownNameError": 0,
            "BackendError": 0, "LaunchError": 0, "NestedText": 0}  # fmt: skip


SIGNALS = ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGXCPU", "SIGXFSZ", "SIGUSR2")


def calls(root: Path) -> Iterator[tuple[str, str, set[str] | None]]:
    """(code, where, parameters) of every literal code; None: some of its parameters are not written there."""
    for path in [*(root / "apps").rglob("*.py"), *(root / "platform").rglob("*.py")]:
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        declared = {argument for node in nodes if getattr(getattr(node, "func", None), "id", "") == "declare_causes"
                    for argument in node.args}  # fmt: skip
        for node in nodes:
            if isinstance(node, ast.Call) and node not in declared:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                index = ARGUMENT.get(name)
                if index is not None and index < len(node.args) and isinstance(node.args[index], ast.Constant):
                    value = node.args[index].value
                    if isinstance(value, str) and value.isupper():
                        yield value, f"{path}:{node.lineno}", given(node, name, index)


def given(call: ast.Call, name: str, index: int) -> set[str] | None:
    """The names of a call's parameters, where all of them are written there."""
    follows = call.args[index + 1] if len(call.args) > index + 1 else None
    if name in ("Cause", "Problem", "NestedText"):
        follows = follows or next((word.value for word in call.keywords if word.arg == "params"), None)
        if follows is None:
            return set() if not call.keywords else None
        if not isinstance(follows, ast.Dict):
            return None
        keys = [key.value if isinstance(key, ast.Constant) else None for key in follows.keys]
        return None if None in keys else {str(key) for key in keys}
    names = {word.arg for word in call.keywords}
    return None if None in names else {str(word) for word in names}


def names_in(entry: dict[str, Any]) -> set[str]:
    found = string.Formatter().parse(entry["message"] + entry["hint"])
    return {name for _, name, _, _ in found if name}


def files() -> list[Path]:
    """Every file of texts: the catalogues, what the registry's packages bring, and what rules, modules of diagnosis and
    commands have beside them."""
    named = [*plugins.FRAMEWORKS.values(), *plugins.STAGES.values(), *plugins.BACKENDS.values()]
    beside = [Path(messages.__file__).parents[1].joinpath(*module.split(".")[1:]) for module in named]
    brought = [file for path in beside for file in (path / "texts.toml", path.with_suffix(".toml")) if file.is_file()]
    known = [messages.FOLDER / lang / "codes.toml" for lang in messages.LANGUAGES]
    folders = (rules.FOLDER, rules.FOLDER.parent, texts.COMMANDS_FOLDER, texts.COMMANDS_FOLDER.parent)
    return known + brought + [file for folder in folders for file in sorted(folder.glob("*.toml"))]


def test_every_code_has_a_text(root: Path) -> None:
    known = messages.list_texts("zh")
    missing = {code: where for code, where, _ in calls(root) if code not in known}
    assert not missing


def test_every_text_gets_its_parameters(root: Path) -> None:
    """The nearest valid value is found by `validate`, after the rules."""
    known = messages.list_texts("zh")
    wrong = {where: gaps for code, where, params in calls(root) if params is not None and code in known
             if (gaps := names_in(known[code]) - params - {"nearest"})}  # fmt: skip
    assert not wrong


@pytest.mark.parametrize("lang", messages.LANGUAGES)
def test_a_text_never_raises_and_shows_a_dash_for_a_missing_parameter(
    lang: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(messages, "report_fault", logging.getLogger("fermi.messages").error)
    assert messages.MISSING_VALUE in messages.render_text("RUNNER_LOST", lang)[0]
    assert messages.render_text("NO_SUCH_CODE", lang) == ("NO_SUCH_CODE", "")
    assert [record.getMessage() for record in caplog.records] == [
        "the text of RUNNER_LOST lacks its parameter node", "NO_SUCH_CODE has no text",
    ]  # fmt: skip
    for code, entry in messages.list_texts(lang).items():
        messages.render_text(code, lang)
        for value in (None, (), {}, "{nonsense"):
            messages.render_text(code, lang, **dict.fromkeys(names_in(entry), value))


def test_an_unknown_language_falls_back_to_english() -> None:
    assert messages.render_text("DATA_EMPTY", "xx", path="/p") == messages.render_text("DATA_EMPTY", "en", path="/p")


def test_every_declared_cause_has_a_text() -> None:
    declared = CAUSES.keys() | {code for engine in plugins.BACKENDS for code in plugins.get_causes(engine)}
    assert declared <= messages.list_texts("zh").keys()


def test_both_languages_have_the_same_codes_once_each() -> None:
    assert set(messages.list_texts("zh")) == set(messages.list_texts("en"))
    others = {messages.FOLDER / lang / "codes.toml" for lang in messages.LANGUAGES if lang != "en"}
    places = [set(tomllib.loads(file.read_text("utf-8"))) for file in files() if file not in others]
    assert sum(map(len, places)) == len(messages.list_texts("en"))


def test_codes_are_in_alphabetical_order() -> None:
    for file in files():
        codes = list(tomllib.loads(file.read_text("utf-8")))
        assert codes == sorted(codes), file


BROUGHT = """
[NEEDS_INFINIBAND.en]
message = "{node} has no InfiniBand."

[NEEDS_INFINIBAND.zh]
message = "{node} 没有 InfiniBand。"
hint = "请选择其他节点。"

[RUNNER_LOST.en]
message = "What the platform says cannot be said otherwise."

[ENGLISH_ALONE.en]
message = "Said in English."
hint = "Everywhere."
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    messages._load_module_texts.cache_clear()


@pytest.mark.parametrize("path", ["brought_by_a_module", "brought_by_a_package/__init__"])
def test_a_plugin_package_has_texts_of_its_codes(outside: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    module, _, package = path.partition("/")
    (outside / f"{path}.py").parent.mkdir(exist_ok=True)
    (outside / f"{path}.py").write_text("raise RuntimeError('asked for its texts alone')")
    (outside / (f"{module}/texts.toml" if package else f"{module}.toml")).write_text(BROUGHT, "utf-8")
    invalidate_caches()
    monkeypatch.setitem(plugins.BACKENDS, "outside", module)

    assert messages.render_text("NEEDS_INFINIBAND", "en", node="gn5") == ("gn5 has no InfiniBand.", "")
    assert messages.render_text("NEEDS_INFINIBAND", "zh", node="gn5") == ("gn5 没有 InfiniBand。", "请选择其他节点。")
    assert messages.render_text("ENGLISH_ALONE", "zh") == ("Said in English.", "Everywhere.")
    assert "platform" not in messages.render_text("RUNNER_LOST", "en", node="gn5")[0]
    assert module not in sys.modules


def test_unreadable_texts_do_not_hide_others(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outside / "brought_broken.py").write_text("")
    (outside / "brought_broken.toml").write_text("not toml")
    invalidate_caches()
    monkeypatch.setattr(messages, "report_fault", logging.getLogger("fermi.messages").error)
    monkeypatch.setitem(plugins.BACKENDS, "broken", "brought_broken")
    monkeypatch.setitem(plugins.BACKENDS, "missing", "no_such_package.backend")
    assert messages.render_text("NO_SUCH_CODE", "en") == ("NO_SUCH_CODE", "")
    assert messages.render_text("DATA_EMPTY", "en", path="/p")[0] != "DATA_EMPTY"


@pytest.mark.parametrize("part", ["message", "hint"])
def test_both_languages_use_the_same_parameters(part: str) -> None:
    zh, en = messages.list_texts("zh"), messages.list_texts("en")
    different = {code for code in zh if names_in(zh[code]) != names_in(en[code])}
    assert not different


def test_both_languages_have_the_same_special_cases() -> None:
    zh, en = messages.list_texts("zh"), messages.list_texts("en")
    special = {code: list(entry["when"]) for code, entry in zh.items() if "when" in entry}
    assert special == {code: list(entry["when"]) for code, entry in en.items() if "when" in entry}
    for code, conditions in special.items():
        for condition in conditions:
            assert set(zh[code]["when"][condition]) == set(en[code]["when"][condition]) <= {"message", "hint"}


def test_each_signal_has_its_own_advice() -> None:
    where = {"rank": 1, "node": "gn5"}
    hints = {name: messages.render_text("RANK_KILLED", "en", **where, signal=name)[1] for name in SIGNALS}
    assert len(set(hints.values())) == len(SIGNALS)
    assert "memory" in hints["SIGKILL"]
    assert not any("ran out of memory" in hints[name] for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGUSR2"))
    assert "/dev/shm" in hints["SIGBUS"]


def test_a_victims_text_names_the_early_exit() -> None:
    where = {"rank": 0, "node": "gn5", "exitCode": 1}
    assert "rank 3 " not in messages.render_text("RANK_FAILED", "en", **where)[0]
    assert (
        "rank 3 had exited with code 0 0.4 s earlier"
        in messages.render_text("RANK_FAILED", "en", **where, left="3", seconds=0.4)[0]
    )


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "1 task fails"), (2, "2 tasks fail"), ("1", "1 task fails"), (0, "0 tasks fail")]
)
def test_plurals_follow_the_number(count: object, shown: str) -> None:
    assert messages.fill_text("X", "{count} {count:task fails|tasks fail}", {"count": count}) == shown


def leaves(table: dict[str, Any], path: str = "") -> dict[str, set[str]]:
    """The blanks of each text. A language without plurals names a number once, another one twice."""
    found: dict[str, set[str]] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{path}{name}.")
        else:
            found[path + name] = {field for _, field, _, _ in string.Formatter().parse(value) if field}
    return found


@pytest.mark.parametrize("room", ["admin", "cli", "guides"])
def test_both_languages_use_the_same_placeholders(room: str) -> None:
    assert leaves(messages._load_file(room, "zh")) == leaves(messages._load_file(room, "en"))


@pytest.mark.parametrize("room", ["admin", "cli", "codes", "guides"])
def test_no_language_has_texts_or_placeholders_that_english_lacks(room: str) -> None:
    english = leaves(messages._load_file(room, "en") if room != "codes" else messages.list_texts("en"))
    known = {(path.rpartition(".")[0] or path, blank) for path, blanks in english.items() for blank in blanks}
    for lang in messages.LANGUAGES:
        said = leaves(messages._load_file(room, lang))
        assert set(said) <= set(english)
        taken = {(path.rpartition(".")[0] or path, blank) for path, blanks in said.items() for blank in blanks}
        assert taken - known == set()


@pytest.mark.parametrize("room", ["admin", "cli"])
def test_texts_are_in_alphabetical_order(room: str) -> None:
    for lang in messages.LANGUAGES:
        codes = list(messages._load_file(room, lang))
        assert codes == sorted(codes)


def test_the_admin_uses_exactly_its_translated_texts(root: Path) -> None:
    files = [*(root / "apps").rglob("*.py"), root / "platform/server/settings/admin_theme.py"]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    written = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    said = {
        value.value
        for node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("said", "label", "label_app")
        for value in [*node.args, *(word.value for word in node.keywords)]
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.isupper()
    }
    texts = set(messages._load_file("admin", "en"))
    assert texts - written == set()
    assert said - texts == set()


def test_times_are_rendered_in_utc_and_invalid_ones_unchanged() -> None:
    told = {"environment": "lab", "project": "vision"}
    for until, said in ((1_764_547_200.5, "2025-12-01 00:00 UTC"), ("tomorrow", "tomorrow"), (1e30, "1e+30")):
        assert said in messages.render_text("WAITING_FOR_RESERVATION", "en", until=until, **told)[0]
    assert "inf" in messages.render_text("WAITING_FOR_RESERVATION", "en", until=float("inf"), **told)[0]


@pytest.mark.parametrize(("lang", "sentence"), [
    ("en", "The start failed: The node runner inside a&b was killed before it began."),
    ("zh", "启动失败：{}"),
])  # fmt: skip
def test_a_stored_reason_in_a_text_is_rendered(lang: str, sentence: str) -> None:
    cause = {"code": "INSIDE_RUNNER_KILLED", "environment": "a&b"}
    inner = messages.render_text("INSIDE_RUNNER_KILLED", lang, environment="a&b")[0]
    assert messages.render_text("START_FAILED", lang, cause=cause)[0] == sentence.format(inner)
