"""Determines which rank failed first. One rule for a runner, which knows its own node, and for the platform, which
knows all nodes. Standard library only, Python 3.9 or later.

1. An end that the platform or a runner requested (SIGTERM to the siblings, a stop) blames no rank. A rank that had
   raised an exception before it was asked to end ended by that (`Node.prefer_exception`: its runner knows both moments
   by one clock).
2. A rank that was killed by a signal explains its peers' errors that follow it within moments, whatever the clocks say.
   SIGTERM is a request, and SIGABRT often a consequence: gloo and NCCL abort when a peer's connection breaks.
3. Otherwise the rank that failed first, by the time of its exception if known, for a process may take seconds to exit.
   A broken connection to a peer (`follows`) is a consequence of another failure.
4. A lost host explains the last errors of its peers (`is_explained_by_host_loss`).
5. A rank that ended with 0 did not fail, but its peers may have needed it (`list_earlier_exits`). If the others only
   report a lost peer, the rank that left explains it (`fermi.engines.failure_cause`).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fermi.runner.exit_codes import to_process_code

CAUSE_TOLERANCE_SECONDS = 5.0
"""How much later a cause may seem to have ended than its consequence: clocks of hosts differ, and kernels report late.
"""
MAX_HEADLINE_LENGTH = 240
"""Characters of an exception."""
UNINFORMATIVE_SIGNALS = (signal.SIGTERM, signal.SIGABRT)
SIGNAL_EXCEPTIONS = ("SignalException", "KeyboardInterrupt", "SystemExit")
"""Exceptions that signal handlers raise: torchrun's agent, Python's own for SIGINT, `sys.exit` in a script's handler.
"""
PEER_ERROR_TEXTS = (
    "Connection closed by peer", "Connection reset by peer", "Connection refused", "BrokenPipeError", "Broken pipe",
    "ConnectionResetError", "ncclRemoteError", "remote process exited", "connection closed by remote",
    "got 0 bytes", "recvValue failed", "sendBytes failed", "connectFullMesh failed", "Read timeout", "Socket Timeout",
    "DistNetworkError", "collective operation timeout", "Timed out waiting", "HorovodInternalError",
    "Horovod has been shut down", "ChildFailedError", "NCCL communicator was aborted",
)  # fmt: skip
"""Texts of errors that are consequences of a peer's end: gloo's, NCCL's, the store's, Horovod's."""
OWN_ERROR_TEXTS = ("EADDRINUSE", "ddress already in use")
"""Texts of errors that are no consequence though they begin like those: the store's when its port is taken."""


class RankEnd(NamedTuple):
    """The end of a rank. `exit_code`: negative = killed by that signal; `ended_at` in unix seconds, 0 = unknown;
    `stop_requested`: it was asked to end before. `erred_at`: time of the exception that ended it, 0 = unknown;
    `follows`: another rank's end may have caused that."""

    rank: int
    exit_code: int
    ended_at: float
    stop_requested: bool = False
    erred_at: float = 0.0
    follows: bool = False

    @property
    def failed_at(self) -> float:
        """When it failed, in unix seconds: at its exception if that is known and earlier than its end."""
        return min(self.erred_at or self.ended_at, self.ended_at)


def list_ends(entries: Iterable[dict[str, Any]]) -> list[RankEnd]:
    """Return the ends among a runner's entries."""
    return [
        RankEnd(
            entry["rank"], entry["exit_code"], entry["ended_at"] or 0.0, bool(entry.get("asked")),
            *classify_error(entry.get("error")),
        )
        for entry in entries
        if entry["state"] == "exited" and entry["exit_code"] is not None
    ]  # fmt: skip


def classify_error(error: Mapping[str, Any] | None) -> tuple[float, bool]:
    """Return when the exception was raised in unix seconds (0 = unknown), and whether another rank's end may have
    caused it."""
    if not error:
        return 0.0, False
    return read_raised_at(error), is_consequence(f"{error.get('type')}: {error.get('message')}")


def read_raised_at(error: Mapping[str, Any] | None) -> float:
    """Return when the exception that ended a rank was raised, in unix seconds; 0 if unknown, and for one that a signal
    raised: then the reason of the signal is the explanation."""
    if not error or str(error.get("type", "")).rpartition(".")[2] in SIGNAL_EXCEPTIONS:
        return 0.0
    return error.get("at") or 0.0


def is_consequence(text: str) -> bool:
    """Return True if the text of an error shows that it is a consequence of a peer's end."""
    return any(words in text for words in PEER_ERROR_TEXTS) and not any(words in text for words in OWN_ERROR_TEXTS)


def find_first_failure(ends: Iterable[RankEnd]) -> RankEnd | None:
    """Return the end that explains the others by the rules above, or None if no rank failed."""
    failed = [end for end in ends if end.exit_code]
    candidates = [end for end in failed if not end.stop_requested] or failed
    if not candidates:
        return None
    begin = min(end.failed_at for end in candidates)

    def guilt(end: RankEnd) -> tuple[bool, bool, float]:
        killed = was_killed(end.exit_code) and may_have_caused(begin, end.ended_at)
        return not killed, not killed and end.follows, end.failed_at

    return min(candidates, key=guilt)


def was_killed(exit_code: int) -> bool:
    """Return True if the rank was killed by a signal that explains its peers' errors; a program around it (`uv run`, a
    shell) reports the signal n as the exit code 128 + n."""
    code = to_process_code(exit_code)
    return code < 0 and -code not in UNINFORMATIVE_SIGNALS


def may_have_caused(first: float, later: float) -> bool:
    """Return True if what ended at `later` may have caused the end at `first`, in unix seconds."""
    return later - first < CAUSE_TOLERANCE_SECONDS


def is_explained_by_host_loss(culprit: RankEnd, heard_at: float | None) -> bool:
    """Return True if the loss of a host that was last heard at `heard_at` (None: unknown) is why `culprit` failed. What
    a signal killed has its own cause, and a host that still reported after the failure did not cause it."""
    return not was_killed(culprit.exit_code) and (
        heard_at is None or not culprit.ended_at or may_have_caused(culprit.ended_at, heard_at)
    )


def list_earlier_exits(culprit: RankEnd, ends: Iterable[RankEnd]) -> list[RankEnd]:
    """Return the ends with 0, not requested, before an error of `culprit`, the first one first."""
    if was_killed(culprit.exit_code):
        return []
    gone = [
        end for end in ends if end.exit_code == 0 and not end.stop_requested and 0 < end.ended_at < culprit.ended_at
    ]
    return sorted(gone, key=lambda end: end.ended_at)


def describe_exception(error: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `exception` and, if known, `at` (the user's own line) of the exception that ended a rank, for a cause."""
    if not error or not error.get("type"):
        return {}
    name, message, file = error["type"], summarize_message(str(error.get("message") or "")), error.get("file")
    said: dict[str, Any] = {"exception": f"{name}: {message}" if message else name}
    if file:
        function = error.get("function")
        where = f" in {function}" if function and function != "<module>" else ""
        said["at"] = f"{str(file).rpartition('/')[2]}:{error.get('line')}{where}"
    return said


_PAYLOAD = re.compile(r"(?:\s*\[[\w-]+='[^']*'\])+$")
"""What XLA appends for programs (xla/tsl, `Status` payloads): `[executable_name='jit_f'] [tf-allocator-…='']`."""


def summarize_message(message: str) -> str:
    """Return one line of a message, with the next one if the first only announces it."""
    lines = [line.strip() for line in message.split("\n") if line.strip()]
    found = " ".join(lines[:2]) if lines and lines[0].endswith(":") else lines[0] if lines else ""
    return _PAYLOAD.sub("", found)[:MAX_HEADLINE_LENGTH]
