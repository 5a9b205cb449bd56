"""Which failures count as one cause, and what is said of all of them."""

from typing import Any

import pytest

from apps.training.core import outcomes
from apps.training.presenters import task_presenter
from fermi import messages

AT = {"rank": 3, "node": "gn5", "exitCode": 1}
VALUE_ERROR = {**AT, "exception": "ValueError: row 17 of shard 0x7f is empty", "at": "train.py:41 in main"}
MEMORY = {"why": "CUDA_OUT_OF_MEMORY", "about": {"rank": 3, "node": "gn5", "size": "20.00 GiB"}}
MODULE = {"why": "MODULE_MISSING", "about": {"rank": 3, "node": "gn5", "module": "einops"}}
OWN = {
    "why": "PROJECT_RULE",
    "about": {"rule": "BAD_SHARD", "message": "Shard 7 on gn5 is bad", "hint": ""},
}


def other(params: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """As another rank on another node failed."""
    about = (
        {"about": {**params["about"], "rank": 0, "node": "gn9", **changes.pop("about", {})}}
        if "about" in params
        else {}
    )
    return {**params, "rank": 0, "node": "gn9", **about, **changes}


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (VALUE_ERROR, other(VALUE_ERROR, exception="ValueError: row 9 of shard 0xab is empty")),
        ({**AT, **MEMORY}, {**other(MEMORY, about={"size": "2.50 GiB"}), "exception": "RuntimeError", "at": "b.py:7"}),
        ({**AT, **MODULE}, other(MODULE)),
        ({**AT, **OWN}, other(OWN, about={"message": "Shard 12 on gn9 is bad"})),
        ({**AT, "signal": "SIGSEGV"}, other({**AT, "signal": "SIGSEGV"}, again=2, step=7)),
    ],
)
def test_failures_that_differ_in_ranks_nodes_and_numbers_are_equal(one: dict[str, Any], same: dict[str, Any]) -> None:
    assert outcomes.compute_cause_key("RANK_FAILED", one) == outcomes.compute_cause_key("RANK_FAILED", same)
    assert outcomes.compute_cause_key("RANK_FAILED", one) != outcomes.compute_cause_key("RANK_KILLED", one)


def test_another_exception_line_rule_signal_or_exit_code_is_another_cause() -> None:
    differ = [
        VALUE_ERROR, {**VALUE_ERROR, "exception": "KeyError: 'a'"}, {**VALUE_ERROR, "at": "train.py:42 in main"},
        {**AT, **MEMORY}, {**AT, **MODULE}, {**AT, **MODULE, "about": {**MODULE["about"], "module": "wandb"}},  # type: ignore[dict-item]
        {**AT, **OWN}, AT, {**AT, "exitCode": 2}, {**AT, "signal": "SIGSEGV"}, {**AT, "signal": "SIGBUS"},
    ]  # fmt: skip
    keys = [outcomes.compute_cause_key("RANK_FAILED", params) for params in differ]
    assert len(set(keys)) == len(differ)
    assert all(len(key) == 16 for key in keys)


@pytest.mark.parametrize("lang", messages.LANGUAGES)
@pytest.mark.parametrize(
    ("code", "params", "words"),
    [
        ("RANK_FAILED", VALUE_ERROR, "ValueError: row … of shard … is empty — train.py:41 in main"),
        ("RANK_FAILED", {**AT, **MODULE}, "einops"),
        ("RANK_FAILED", {**AT, "left": 2, "seconds": 0.4, "again": 2, "step": 9}, "1"),
        ("RANK_KILLED", {**AT, "signal": "SIGSEGV"}, "SIGSEGV"),
        ("NODE_LOST", {"node": "gn5", "evidence": "no sign of life"}, "…"),
        ("NO_SUCH_CODE", {"node": "gn5"}, "NO_SUCH_CODE"),
    ],
)
def test_the_text_of_a_group_names_no_single_rank(code: str, params: dict[str, Any], words: str, lang: str) -> None:
    said = task_presenter.describe_cause(code, params, lang)
    assert words in said
    assert "gn5" not in said
    assert "None" not in said
    assert messages.MISSING_VALUE not in said
