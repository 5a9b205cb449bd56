"""Reports that a script asks for something on its standard input, where a rank has none: `input()`, a debugger's
prompt, `click.prompt`, the questions of W&B and Hugging Face. Standard library only, Python 3.9 or later.

The interpreter itself reports each call of `input()` as the audit event `builtins.input`, with the prompt, before it
reads (https://docs.python.org/3/library/audit_events.html). So nothing of the script is replaced, and its tracebacks
stay as they are. An audit hook is called for other events as well, which takes about 0.1 µs each.
"""

from __future__ import annotations

import os
import sys

from . import records

MAX_PROMPTS = 10
"""Of a process: a script may ask again and again."""
MAX_LENGTH = 200

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def watch_prompts() -> None:
    """Report calls of `input()` from now on, if standard input is /dev/null. May raise OSError."""
    if os.fstat(0).st_rdev != os.stat(os.devnull).st_rdev:
        return
    left = MAX_PROMPTS

    def report_prompt(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event != "builtins.input" or not left:
            return
        try:
            left -= 1
            text = arguments[0] if arguments and isinstance(arguments[0], str) else ""
            records.add_record({"source": "runner", "prompt": {"kind": "input", "text": text[:MAX_LENGTH]}})
        except Exception:
            pass

    sys.addaudithook(report_prompt)
