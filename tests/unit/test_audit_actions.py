"""Each action that the audit trail records has a text in each language."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from fermi.messages import LANGUAGES, list_sentences

ROOT = Path(__file__).parents[2]
ACTION = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")
BUILT = (
    "administrator",
    "cluster",
    "directory-group",
    "environment",
    "environment-template",
    "group",
    "member",
    "sweep",
    "{channel.what}",
)
"""Things whose verb, or the thing itself, is known only when the event is recorded."""


@cache
def read_trees() -> tuple[ast.Module, ...]:
    paths = [*(ROOT / "apps").rglob("*.py"), *(ROOT / "platform/server").rglob("*.py")]
    return tuple(ast.parse(path.read_text("utf-8")) for path in sorted(paths))


def list_calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_recording(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "audit.record_event" and len(call.args) > 1


def list_literals(node: ast.AST) -> Iterator[str]:
    """Yield the names of actions in an expression, outside of f-strings."""
    parts = {part for text in ast.walk(node) if isinstance(text, ast.JoinedStr) for part in ast.walk(text)}
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and one not in parts and ACTION.fullmatch(str(one.value)):
            yield str(one.value)


def find_recorders() -> set[str]:
    """Return the names of functions that record an action which their caller names."""
    return {
        function.name
        for tree in read_trees()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        if any(is_recording(call) and isinstance(call.args[1], ast.Name) for call in list_calls(function))
    }


def list_actions() -> set[str]:
    recorders = find_recorders()
    found: set[str] = set()
    for call in (call for tree in read_trees() for call in list_calls(tree)):
        if is_recording(call):
            found.update(list_literals(call.args[1]))
        elif getattr(call.func, "attr", getattr(call.func, "id", "")) in recorders:
            found.update(name for argument in call.args for name in list_literals(argument))
    return found


def list_built_things() -> set[str]:
    calls = [call for tree in read_trees() for call in list_calls(tree) if is_recording(call)]
    texts = [ast.unparse(call.args[1]) for call in calls if isinstance(call.args[1], ast.JoinedStr)]
    return {text[2:-1].split(".{")[0] for text in texts}


def test_each_action_has_a_text_in_each_language() -> None:
    actions = list_actions()
    assert len(actions) > 100
    for language in LANGUAGES:
        assert sorted(actions - set(list_sentences("actions", language))) == []


def test_each_thing_whose_verb_varies_is_known_here() -> None:
    assert sorted(list_built_things() - set(BUILT)) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_texts_of_actions_are_in_order_and_complete(language: str) -> None:
    path = ROOT / f"platform/fermi/messages/{language}/actions.toml"
    names = re.findall(r'^"([^"]+)" = ', path.read_text("utf-8"), re.MULTILINE)
    assert names == sorted(names)
    assert set(names) == set(list_sentences("actions", "en"))
