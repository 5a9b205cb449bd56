"""What nodes report of themselves, as it is read from records that a rank may have written as well."""

import random

import pytest

from fermi.metrics.facts import MAX_ITEMS, PACKAGES, VARIABLES, FactPart, FactParts, compute_digest, parse_facts
from fermi.metrics.records import parse_record


def test_facts_are_read() -> None:
    found = parse_facts(
        {"python": "3.11.4", "cores": 8, "gpus": {"NVIDIA H100": 8, "": 1, "x": -1}, "driver": "550.54.15",
         "script": {"path": "train.py", "sha256": "a" * 64}, "git": {"commit": "b" * 40, "branch": "main"}}
    )  # fmt: skip
    assert found is not None
    assert found.values == {
        "python": "3.11.4", "cores": 8, "gpus": {"NVIDIA H100": 8}, "driver": "550.54.15",
        "script": {"path": "train.py", "sha256": "a" * 64}, "git": {"commit": "b" * 40, "branch": "main"},
    }  # fmt: skip
    assert found.part is None


@pytest.mark.parametrize(
    "found",
    [None, [], "x", {}, {"python": ""}, {"python": 3}, {"cores": -1}, {"gpus": ["x"]}, {"script": {"path": "a"}},
     {"git": {"commit": "main"}}, {"packages": "a==1"}, {"packages": "a==1", "part": 1, "parts": 1, "key": "1"},
     {"packages": "a==1", "part": 0, "parts": 1e9, "key": "1"},
     {"packages": "a==1", "part": 0, "parts": 1, "key": "!"}],
)  # fmt: skip
def test_what_is_malformed_is_left_out(found: object) -> None:
    assert parse_facts(found) is None


def test_a_list_is_whole_once_all_of_its_parts_have_come_in_any_order() -> None:
    parts = FactParts({})
    first, second = FactPart(PACKAGES, "1", 0, 2, {"a": "1"}), FactPart(PACKAGES, "1", 1, 2, {"b": "2"})
    assert parts.add(second) is None
    assert parts.add(FactPart(VARIABLES, "9", 0, 2, {"X": ""})) is None
    assert parts.add(first) == {"a": "1", "b": "2"}
    assert parts.state.keys() == {VARIABLES}


def test_a_list_that_begins_anew_replaces_the_one_that_was_not_complete() -> None:
    parts = FactParts({})
    assert parts.add(FactPart(PACKAGES, "1", 0, 2, {"a": "1"})) is None
    assert parts.add(FactPart(PACKAGES, "2", 0, 1, {"c": "3"})) == {"c": "3"}
    assert parts.add(FactPart(PACKAGES, "1", 1, 2, {"b": "2"})) is None


def test_a_list_is_bounded() -> None:
    parts = FactParts({})
    found = None
    for place in range(100):
        items = {f"p{place}-{n}": "1" for n in range(100)}
        found = parts.add(FactPart(PACKAGES, "1", place, 100, items))
    assert found is not None
    assert len(found) == MAX_ITEMS


def test_the_digest_depends_on_the_content_and_not_on_its_order() -> None:
    assert compute_digest(PACKAGES, {"a": "1", "b": "2"}) == compute_digest(PACKAGES, {"b": "2", "a": "1"})
    assert compute_digest(PACKAGES, {"a": "1"}) != compute_digest(PACKAGES, {"a": "2"})
    assert compute_digest(PACKAGES, {}) != compute_digest(VARIABLES, {})


def test_no_bytes_of_a_rank_raise() -> None:
    seed = b'{"source":"facts","facts":{"packages":"a==1 b==2","part":0,"parts":1,"key":"1-a","gpus":{"x":1}}}'
    chosen = random.Random(7)
    for _ in range(3000):
        text = bytearray(seed)
        for _ in range(chosen.randint(1, 4)):
            text[chosen.randrange(len(text))] = chosen.choice(b'{}[]",:0a\\\xff')
        parse_record(bytes(text))
