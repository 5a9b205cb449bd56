"""Every code that is raised anywhere has a text in both languages, and both texts take the same parameters."""

import ast
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.training.reasons import Reason
from fermi import messages

ARGUMENT = {"ApiError": 1, "Problem": 1, "DataError": 0, "Cause": 0, "text": 0, "UnknownName": 0, "BackendError": 0,
            "LaunchError": 0}  # fmt: skip


def codes(root: Path) -> Iterator[tuple[str, str]]:
    """(code, where) of every literal code."""
    for path in [*(root / "apps").rglob("*.py"), *(root / "platform").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                index = ARGUMENT.get(name)
                if index is not None and index < len(node.args) and isinstance(node.args[index], ast.Constant):
                    value = node.args[index].value
                    if isinstance(value, str) and value.isupper():
                        yield value, f"{path}:{node.lineno}"


def catalogue(lang: str) -> dict[str, dict[str, str]]:
    path = Path(messages.__file__).with_name(f"{lang}.toml")
    return tomllib.loads(path.read_text("utf-8"))


def test_every_code_has_a_text(root: Path) -> None:
    known = catalogue("zh")
    missing = {code: where for code, where in codes(root) if code not in known}
    assert not missing


def test_every_reason_of_a_task_has_a_text() -> None:
    assert set(Reason) <= set(catalogue("zh"))


def test_both_languages_have_the_same_codes_in_alphabetical_order() -> None:
    zh, en = list(catalogue("zh")), list(catalogue("en"))
    assert zh == en == sorted(zh)


@pytest.mark.parametrize("part", ["message", "hint"])
def test_both_languages_take_parameters_that_the_other_knows(part: str) -> None:
    zh, en = catalogue("zh"), catalogue("en")

    def names(entry: dict[str, str]) -> set[str]:
        found = string.Formatter().parse(entry["message"] + entry["hint"])
        return {name for _, name, _, _ in found if name}

    different = {code for code in zh if names(zh[code]) != names(en[code])}
    assert not different
