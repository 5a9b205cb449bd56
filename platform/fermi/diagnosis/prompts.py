"""Explains that a rank asked for something that nobody can answer: ranks have no standard input. Pure.

A question is known from the rank's process (`fermi.probe.prompts`: `input()` was called, and got end of file), or from
its output, which ends with it (`fermi.runner.prompts`). Neither ends a task.
"""

import re
from collections.abc import Mapping
from typing import Any

from fermi.diagnosis import Evidence, Finding, Level, Where
from fermi.diagnosis.actions import ActionCode, build_action

ASKED = "SCRIPT_ASKED"
KINDS = (
    ("SCRIPT_ASKED_DEBUGGER", re.compile(r"(?i)\(i?pdb\+*\)|i?pdb\d*>|^>>>|In \[\d+\]:")),
    ("SCRIPT_ASKED_WANDB", re.compile(r"(?i)wandb|weights & biases")),
    ("SCRIPT_ASKED_REMOTE_CODE", re.compile(r"(?i)run the custom code|trust_remote_code")),
    ("SCRIPT_ASKED_PASSWORD", re.compile(r"(?i)password|passphrase|passcode|api key|\btoken\b|username for|\(yes/no/")),
)
"""Codes of questions that are known, by a part of their text."""
CODES = (ASKED, *(code for code, _pattern in KINDS))
ANSWERED = "answered"


def build_prompt_finding(prompt: Mapping[str, Any], rank: int, since: float | None, asked: str = "") -> Finding | None:
    """Return the finding about a record's `prompt`; None if it is malformed, or says that the output goes on. `asked`:
    the last question with which the rank has called `input()`."""
    text, kind = prompt.get("text"), prompt.get("kind")
    if not isinstance(text, str) or kind not in ("input", "output"):
        return None
    code = next((code for code, pattern in KINDS if pattern.search(text)), ASKED)
    return Finding(
        code,
        Level.WARN if kind == "output" and asked.strip() == text.strip() else Level.INFO,
        {"rank": rank},
        [Where(rank)],
        since,
        [Evidence("SCRIPT_QUESTION", {}, [text.strip() or "input()"])],
        [build_action(ActionCode.EDIT_SCRIPT)],
        key=str(rank),
    )
