"""Who failed first: one rule, for a runner, which knows its own node, and for the platform, which knows all of them.
Standard library only, Python 3.9 or later.

1. What the platform or a runner asked for (SIGTERM to the siblings, a stop) blames nobody. A rank that had raised
   before it was asked ended by that (`Node.prefer_exception`: its runner knows both moments by one clock).
2. A rank that a signal killed explains its peers' errors, which follow it within moments, whatever the clocks say.
   SIGTERM is a request, and SIGABRT often a consequence: gloo and NCCL abort when a peer's connection breaks.
3. Else who failed first: by the moment of the exception, where it is known, for a process may take seconds to go down.
   That its connection to a peer broke (`follows`) is what comes of another's failure.
4. A host that was lost explains what its peers said in the end (`loss_explains`).
5. A rank that ended with 0 failed by nothing, but its peers may have needed it (`left_before`). Where the failure of
   the others only tells of a peer that is gone, the rank that left explains it (`fermi.engines.failure_cause`).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

TOGETHER_SECONDS = 5.0
"""How much later a cause may seem to have ended than what it caused: hosts' clocks differ, and so do kernels' minds."""
LONGEST = 240
"""Letters of an exception."""
EXPLAIN_NOTHING = (signal.SIGTERM, signal.SIGABRT)
BY_SIGNALS = ("SignalException", "KeyboardInterrupt", "SystemExit")
"""Exceptions that handlers of signals raise: torchrun's agent, Python's own for SIGINT, `sys.exit` in a script's."""
FOLLOWS = (
    "Connection closed by peer", "Connection reset by peer", "Connection refused", "BrokenPipeError", "Broken pipe",
    "ConnectionResetError", "ncclRemoteError", "remote process exited", "connection closed by remote",
    "got 0 bytes", "recvValue failed", "sendBytes failed", "connectFullMesh failed", "Read timeout", "Socket Timeout",
    "DistNetworkError", "collective operation timeout", "Timed out waiting", "HorovodInternalError",
    "Horovod has been shut down", "ChildFailedError", "NCCL communicator was aborted",
)  # fmt: skip
"""What errors say that come of a peer's end: gloo's, NCCL's, the store's, Horovod's."""
BY_ITSELF = ("EADDRINUSE", "ddress already in use")
"""What errors say that come of no peer's end, though they begin like those: the store's where its port is taken."""


class End(NamedTuple):
    """`exit_code` negative = killed by that signal; `ended_at` in unix seconds, 0 = not known; `asked`: it was told to
    end before it did. `erred_at`: the moment of the exception that ended it, 0 = not known; `follows`: another's end
    may have caused that."""

    rank: int
    exit_code: int
    ended_at: float
    asked: bool = False
    erred_at: float = 0.0
    follows: bool = False

    @property
    def failed_at(self) -> float:
        return min(self.erred_at or self.ended_at, self.ended_at)


def ends(entries: Iterable[dict[str, Any]]) -> list[End]:
    """Of a runner's entries."""
    return [
        End(
            entry["rank"], entry["exit_code"], entry["ended_at"] or 0.0, bool(entry.get("asked")),
            *of_error(entry.get("error")),
        )
        for entry in entries
        if entry["state"] == "exited" and entry["exit_code"] is not None
    ]  # fmt: skip


def of_error(error: Mapping[str, Any] | None) -> tuple[float, bool]:
    """When, and whether another's end may have caused it."""
    if not error:
        return 0.0, False
    return raised_at(error), follows(f"{error.get('type')}: {error.get('message')}")


def raised_at(error: Mapping[str, Any] | None) -> float:
    """Returns when the exception was raised that ended a rank, in unix seconds; 0 where none is known, and for one
    that a signal raised: that signal's reason explains, and not the exception."""
    if not error or str(error.get("type", "")).rpartition(".")[2] in BY_SIGNALS:
        return 0.0
    return error.get("at") or 0.0


def follows(said: str) -> bool:
    return any(words in said for words in FOLLOWS) and not any(words in said for words in BY_ITSELF)


def first_to_fail(found: Iterable[End]) -> End | None:
    failed = [end for end in found if end.exit_code]
    candidates = [end for end in failed if not end.asked] or failed
    if not candidates:
        return None
    begin = min(end.failed_at for end in candidates)

    def guilt(end: End) -> tuple[bool, bool, float]:
        killed = was_killed(end.exit_code) and together(begin, end.ended_at)
        return not killed, not killed and end.follows, end.failed_at

    return min(candidates, key=guilt)


def was_killed(exit_code: int) -> bool:
    return exit_code < 0 and -exit_code not in EXPLAIN_NOTHING


def together(first: float, later: float) -> bool:
    """Whether `later`, in unix seconds, may be the moment of what caused the end at `first`."""
    return later - first < TOGETHER_SECONDS


def loss_explains(culprit: End, heard_at: float | None) -> bool:
    """Whether a host that was last heard at `heard_at` (None: not known) and is lost is why `culprit` failed. What a
    signal killed has a cause of its own, and a host that still spoke after the failure had nothing to do with it."""
    return not was_killed(culprit.exit_code) and (
        heard_at is None or not culprit.ended_at or together(culprit.ended_at, heard_at)
    )


def left_before(culprit: End, found: Iterable[End]) -> list[End]:
    """Who had ended with 0 by themselves before an error of `culprit`'s, the first one first."""
    if was_killed(culprit.exit_code):
        return []
    gone = [end for end in found if end.exit_code == 0 and not end.asked and 0 < end.ended_at < culprit.ended_at]
    return sorted(gone, key=lambda end: end.ended_at)


def erred(error: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a cause says of the exception that ended a rank: its `exception`, and the user's own line (`at`)."""
    if not error or not error.get("type"):
        return {}
    name, message, file = error["type"], headline(str(error.get("message") or "")), error.get("file")
    said: dict[str, Any] = {"exception": f"{name}: {message}" if message else name}
    if file:
        function = error.get("function")
        where = f" in {function}" if function and function != "<module>" else ""
        said["at"] = f"{str(file).rpartition('/')[2]}:{error.get('line')}{where}"
    return said


_PAYLOAD = re.compile(r"(?:\s*\[[\w-]+='[^']*'\])+$")
"""What XLA appends for programs (xla/tsl, `Status` payloads): `[executable_name='jit_f'] [tf-allocator-…='']`."""


def headline(message: str) -> str:
    """One line of it, and the next where that one only announces it."""
    lines = [line.strip() for line in message.split("\n") if line.strip()]
    found = " ".join(lines[:2]) if lines and lines[0].endswith(":") else lines[0] if lines else ""
    return _PAYLOAD.sub("", found)[:LONGEST]
