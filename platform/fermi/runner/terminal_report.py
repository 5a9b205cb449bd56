"""Texts for a terminal about ranks that stall or failed. Standard library only, Python 3.9 or later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fermi.runner.number_ranges import format_ranges

MIN_REPORT_SECONDS = 60.0
"""After so long without progress, ranks are reported though some are at work."""


class StallReporter:
    """Reports stalled ranks. `say`: called with a line when the report has changed. An evaluation is not reported:
    while one rank is at work, the others wait for it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._said: list[str] = []

    def save(self, status: dict[str, Any]) -> bool:
        """Report if the status has changed. Used as a node's `SaveStatus`."""
        stalled = [entry for entry in status["ranks"] if entry["state"] == "running" and entry["stalled"]]
        seconds = max((entry["stalled"]["looked_at"] - entry["stalled"]["since"] for entry in stalled), default=0.0)
        worth_it = seconds >= MIN_REPORT_SECONDS or any(entry["stalled"]["stopped"] for entry in stalled)
        if not worth_it and not all(entry["stalled"]["still"] for entry in stalled):
            return True
        groups = group_stalled_ranks(stalled)
        if groups and groups != self._said:
            self.say(f"no progress for {seconds:.0f} s: {'; '.join(groups)}")
        elif self._said and not groups and status["state"] == "running":
            self.say("the ranks go on")
        self._said = groups
        return True


def group_stalled_ranks(stalled: Sequence[dict[str, Any]]) -> list[str]:
    """Return which ranks are where, the largest group first."""
    groups: dict[str, list[int]] = {}
    for entry in stalled:
        groups.setdefault(describe_place(entry["stalled"]), []).append(entry["rank"])
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [f"{format_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} {place}" for place, ranks in ordered]


def describe_place(stalled: dict[str, Any]) -> str:
    """Return where a stalled rank is."""
    at = stalled["at"]
    if stopped := stalled["stopped"]:
        by = stopped["signal"] or stopped["tracer"]
        return f"stopped{f' by {by}' if by else ''}: `kill -CONT {stopped['pid']}` lets it go on"
    if stalled["phase"] == "ending":
        found = "in the teardown"
    elif stalled["in"]:
        found = f"in {stalled['in']}" + (f" ({at})" if at else "")
    else:
        found = f"at {at}" if at else "outside of the script"
    for link in stalled["links"][:1]:
        found += f", where {link['peer']}:{link['port']} does not answer"
    return found if stalled["still"] else f"{found}, at work"


def describe_failure(entry: dict[str, Any]) -> str:
    """Return a text for the end of a rank: its exception, or what the kernel reports."""
    kill = entry["kill"]
    held = f"; port {kill['port']} is in use by {kill['holder'] or 'another process'}" if is_port_conflict(kill) else ""
    if error := entry["error"]:
        message = error["message"].splitlines()[0] if error["message"] else ""
        function = f" in {error['function']}" if error["function"] != "<module>" else ""
        return f": {error['type']}: {message} ({error['file']}:{error['line']}{function}){held}"
    if held:
        return held
    if kill and kill["by"] == "gpu":
        return f": GPU {kill['gpu']}: {kill['line']}"
    if kill:
        limit = f" ({kill['limit'] >> 20} MiB)" if kill["limit"] else ""
        whose = "its limit" if kill["scope"] == "cgroup" else "the host"
        return f": killed by the kernel, {whose} has no more memory{limit}"
    return ""


def is_port_conflict(kill: dict[str, Any] | None) -> bool:
    """Return True if the rank could not have its port."""
    return bool(kill) and kill["by"] == "port"  # type: ignore[index]


CAUSE_TEXTS = {
    "PROCESS_BOUND_REACHED": (
        "there were {processes} processes with {threads} threads, most of them started by rank {rank}; the bounds are "
        "{processBound} and {threadBound}",
        "start fewer data loader workers and wait for the processes that the script starts, or raise --processes",
    ),
    "OPEN_FILE_BOUND_REACHED": (
        "{files} files were open, most of them by rank {rank}; the bound is {fileBound}",
        "close files, connections and memory maps that are no longer used, or raise --open-files",
    ),
    "MEMORY_BOUND_REACHED": (
        "the processes used {used} of memory, those of rank {rank} most; the bound is {bound}",
        "take a smaller batch or fewer data loader workers, or raise --memory-gb",
    ),
    "DISK_BOUND_REACHED": (
        "the folders of the run hold {size}, {wrote} of it written within {seconds} s; the bound is {bound}",
        "keep fewer checkpoints and outputs, or raise --disk-gb",
    ),
    "DISK_RESERVE_REACHED": (
        "the run wrote {wrote} within {seconds} s to the disk of {path}, of which {freeMiB} of {totalMiB} MiB are "
        "free; the last {reserveMiB} MiB are kept",
        "make room there and go on from the newest checkpoint, or lower --reserve-percent",
    ),
    "DISK_WITHOUT_ROOM": (
        "the disk of {path} has {freeMiB} of {totalMiB} MiB free, and the last {reserveMiB} MiB are kept",
        "make room there, or lower --reserve-percent",
    ),
    "DISK_FULL": (
        "the disk of {path} is full ({free} of {total} bytes free)",
        "make room there and go on from the newest checkpoint",
    ),
}
"""What was found, and what to do: for the codes of `bounds.py`, `disk_usage.py` and `causes.py`."""


def describe_cause(cause: dict[str, Any]) -> str:
    """Return a text for a cause, with figures and what to do."""
    if cause["code"] not in CAUSE_TEXTS:
        return str(cause["code"])
    found, advice = CAUSE_TEXTS[cause["code"]]
    rank = cause.get("rank")  # none: it ended before what it had started
    return f"{found.format_map({**cause, 'rank': '–' if rank is None else rank})}: {advice}"


def format_ranks(ranks: Sequence[int]) -> str:
    """Return a text such as `rank 3` or `ranks 0-2, 5`."""
    return ("rank " if len(ranks) == 1 else "ranks ") + format_ranges(ranks, ", ")
