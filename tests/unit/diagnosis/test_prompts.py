"""What is said of a script that asks."""

from typing import Any

import pytest

from fermi import messages
from fermi.diagnosis import Level, prompts


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("continue? [y/n] ", "SCRIPT_ASKED"),
        ("", "SCRIPT_ASKED"),
        ("(Pdb) ", "SCRIPT_ASKED_DEBUGGER"),
        ("wandb: Enter your choice: ", "SCRIPT_ASKED_WANDB"),
        ("Do you wish to run the custom code? [y/N] ", "SCRIPT_ASKED_REMOTE_CODE"),
        ("git@host's password: ", "SCRIPT_ASKED_PASSWORD"),
        ("Are you sure you want to continue connecting (yes/no/[fingerprint])? ", "SCRIPT_ASKED_PASSWORD"),
    ],
)
def test_each_kind_of_question_has_its_own_advice(text: str, code: str) -> None:
    found = prompts.build_prompt_finding({"kind": "input", "text": text}, 3, 12.0)
    assert found
    assert (found.code, found.level, found.where[0].rank, found.since) == (code, Level.INFO, 3, 12.0)
    assert found.evidence[0].lines == [text.strip() or "input()"]
    for language in ("en", "zh"):
        assert all(messages.render_text(found.code, language, **found.params))
        assert messages.render_text(found.evidence[0].code, language)[0]


@pytest.mark.parametrize("prompt", [{}, {"kind": "answered", "text": "x"}, {"kind": "input", "text": 3}, {"kind": "x"}])
def test_a_malformed_prompt_is_no_finding(prompt: dict[str, Any]) -> None:
    assert prompts.build_prompt_finding(prompt, 0, None) is None


def test_two_proofs_of_one_question_are_a_warning() -> None:
    waits = {"kind": "output", "text": "continue? [y/n]"}
    for asked, level in (("", Level.INFO), ("other? ", Level.INFO), ("continue? [y/n] ", Level.WARN)):
        found = prompts.build_prompt_finding(waits, 0, None, asked)
        assert found
        assert found.level is level
