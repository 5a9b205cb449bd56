"""The checks themselves: each kind of fault, put into the real platform on purpose, is found and named."""

from collections.abc import Callable
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from rest_framework.fields import CharField
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup

from apps.accounts import selectors
from apps.common import request_shapes
from apps.common.renderers import JSONRenderer
from tests.openapi.conftest import Turns, World
from tests.openapi.test_every_operation import judge, schema

pytestmark = pytest.mark.django_db


def broken(*_: object) -> None:
    raise RuntimeError("broken on purpose")


@pytest.fixture
def found(world: World, turns: Turns) -> Callable[..., str]:
    """What is said of an operation; "" when nothing is. What hypothesis makes depends on which modules this process has
    imported, too, so that few requests of a kind may all miss it."""

    def ask(path: str, method: str, mode: GenerationMode = GenerationMode.POSITIVE) -> str:
        @settings(
            max_examples=10 if mode is GenerationMode.POSITIVE else 200,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
        )
        @given(case=schema[path][method].as_strategy(generation_mode=mode))
        def each(case: Any) -> None:
            judge(case, world, turns)

        try:
            each()
        except FailureGroup as failures:
            return "\n".join(f"{one.title}: {one.message}" for one in failures.exceptions)
        return ""

    return ask


def test_a_view_that_raises_is_found(found: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("/api/v1/auth/me", "GET") == ""
    monkeypatch.setattr(selectors, "serialize_user", broken)
    assert "A fault of the server" in found("/api/v1/auth/me", "GET")


def test_an_answer_outside_the_schema_is_found(found: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "serialize_user", lambda *_: {"username": 7})
    assert "Response violates schema" in found("/api/v1/auth/me", "GET")


def test_another_media_type_is_found(found: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JSONRenderer, "media_type", "text/plain")
    assert "text/plain" in found("/api/v1/auth/me", "GET")


def test_an_accepted_invalid_body_is_found(found: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("/api/v1/projects", "POST", GenerationMode.NEGATIVE) == ""
    monkeypatch.setattr(request_shapes, "_find_unknown_names", lambda *_: iter(()))
    monkeypatch.setattr(request_shapes, "_find_expected_type", lambda *_: None)
    monkeypatch.setattr(
        CharField, "run_validation", lambda *_: f"p{token_hex(4)}"
    )  # anything is taken as a project's name
    assert "Schema-violating request accepted" in found("/api/v1/projects", "POST", GenerationMode.NEGATIVE)


def test_a_refused_valid_body_is_found(found: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("/api/v1/projects", "POST") == ""
    monkeypatch.setattr(CharField, "run_validation", lambda self, _: self.fail("max_length", max_length=0))
    assert "The schema allows what is refused" in found("/api/v1/projects", "POST")
