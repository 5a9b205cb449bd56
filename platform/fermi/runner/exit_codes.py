"""Exit codes of runners, and of processes as shells and containers have them; the grace before an end. Standard library
only, Python 3.9 or later: runners end with them, and the platform reads them."""

from __future__ import annotations

GAVE_UP = 71  # EX_OSERR
"""Of a runner that started no rank, because it could not or because the nodes did not find each other."""
CANNOT_START = 126
NOT_FOUND = 127
"""A shell's words for a command that could not be run, and for one that is not there."""
_SIGNALS = 64
GRACE_SECONDS = 30.0
"""What ranks that are asked to end get before they are killed, unless somebody says otherwise."""


def shown(code: int) -> int:
    """A process's exit code (negative = killed by that signal) as a shell or a container has it: 128 + n."""
    return code if code >= 0 else 128 - code


def as_process(code: int) -> int:
    """The way back."""
    return 128 - code if 128 < code <= 128 + _SIGNALS else code
