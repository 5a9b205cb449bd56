"""Exit codes of runners and, as shells and containers report them, of processes; the default grace period. Standard
library only, Python 3.9 or later: runners exit with them, and the platform reads them."""

from __future__ import annotations

NO_RANK_STARTED = 71  # EX_OSERR
"""Of a runner that started no rank, because it could not or because the nodes did not meet."""
CANNOT_START = 126
NOT_FOUND = 127
"""A shell's codes for a command that cannot be run, and for one that does not exist."""
_MAX_SIGNAL = 64
DEFAULT_GRACE_SECONDS = 30.0
"""What ranks get to exit before they are killed, by default."""


def to_shell_code(code: int) -> int:
    """Return a process's exit code (negative = killed by that signal) as shells and containers report it: 128 + n."""
    return code if code >= 0 else 128 - code


def to_process_code(code: int) -> int:
    """Return a process's exit code for one that a shell reports."""
    return 128 - code if 128 < code <= 128 + _MAX_SIGNAL else code
