"""Expands Slurm's short form of a list of hosts: `gpu[01-03,7],login` → gpu01 gpu02 gpu03 gpu7 login.

The same as `scontrol show hostnames`, where there is no scontrol (in a container, say).
"""

import re
from collections.abc import Iterator

from fermi.jobs.errors import LaunchError

_HOSTS = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
MAX_RANGE = 1_000_000


def expand_hosts(text: str) -> list[str]:
    """Return the hosts. Raises LaunchError (HOSTLIST_INVALID)."""
    parts = _HOSTS.findall(text)
    if not parts or ",".join(parts) != text:
        raise LaunchError("HOSTLIST_INVALID", found=text)
    return [host for part in parts for host in _expand_part(part, text)]


def _expand_part(part: str, whole: str) -> Iterator[str]:
    brackets = _BRACKETS.search(part)
    if brackets is None:
        yield part
        return
    for number in _expand_numbers(brackets[1], whole):
        for rest in _expand_part(part[brackets.end() :], whole):
            yield part[: brackets.start()] + number + rest


def _expand_numbers(ranges: str, whole: str) -> Iterator[str]:
    """Yield the numbers of ranges: `01-03,7` → 01 02 03 7, as wide as the lower end is written."""
    for item in ranges.split(","):
        low, dash, high = item.partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal() and 0 <= int(high) - int(low) < MAX_RANGE):
            raise LaunchError("HOSTLIST_INVALID", found=whole)
        for number in range(int(low), int(high) + 1):
            yield str(number).zfill(len(low))


def expand_counts(text: str) -> list[int]:
    """Return Slurm's tasks per node: `2(x3),1` → 2 2 2 1. Raises LaunchError (HOSTLIST_INVALID)."""
    found: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if not match:
            raise LaunchError("HOSTLIST_INVALID", found=text)
        found += [int(match[1])] * int(match[2] or 1)
    return found
