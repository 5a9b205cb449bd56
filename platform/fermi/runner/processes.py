"""Process identity on Linux. A pid alone may be somebody else's by now; with its start time it cannot be."""

import os
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from fermi.runner.node import start_time


def is_alive(identity: Mapping[str, Any] | None) -> bool:
    """`identity`: `{"pid": …, "start_time": …}` as a runner wrote it, in this boot."""
    return identity is not None and bool(identity["pid"]) and start_time(identity["pid"]) == identity["start_time"]


def send_signal(identity: Mapping[str, Any], number: signal.Signals) -> bool:
    """Signals exactly that process: the descriptor is taken first, the start time checked after. False = it is gone."""
    try:
        descriptor = os.pidfd_open(identity["pid"])
    except ProcessLookupError:
        return False
    try:
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def session_members(leaders: Iterable[Mapping[str, Any]]) -> list[dict[str, int]]:
    """Living processes in the sessions that `leaders` opened. A leader's pid is not given away while its session has
    members; should it have been reused after the session died out, the new leader's start time tells, and its session
    is left alone."""
    by_pid = {leader["pid"]: leader["start_time"] for leader in leaders if leader["pid"]}
    strangers = {pid for pid, began in by_pid.items() if start_time(pid) not in (began, None)}
    ours = by_pid.keys() - strangers
    if not ours:
        return []
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (member := _member(int(name), ours)):
            found.append(member)
    return found


def _member(pid: int, sessions: Iterable[int]) -> dict[str, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in (b"Z", b"X") or int(fields[3]) not in sessions:
        return None
    return {"pid": pid, "start_time": int(fields[19])}
