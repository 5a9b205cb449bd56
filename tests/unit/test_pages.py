"""Large pages for what is forked: the memory holds what it held, and whoever waits is not kept waiting."""

import ctypes
import mmap
from pathlib import Path
from types import SimpleNamespace

import pytest

from fermi.runner import huge_pages


def huge_kib() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("AnonHugePages:"):
            return int(line.split()[1])
    return 0


def test_memory_holds_what_it_held_and_is_in_large_pages_where_linux_does_so() -> None:
    with mmap.mmap(-1, 8 * huge_pages.HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place : place + 4] = (place // mmap.PAGESIZE).to_bytes(4, "little")
        before = huge_kib()
        gathered = huge_pages.gather(lambda: False)
        if gathered:
            assert huge_kib() - before >= 7 * huge_pages.HUGE >> 10
        for place in range(0, len(memory), mmap.PAGESIZE):
            assert memory[place : place + 4] == (place // mmap.PAGESIZE).to_bytes(4, "little")


def test_places_are_whole_large_pages_of_memory_that_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = """\
555500000000-555500500000 rw-p 00000000 00:00 0                          [heap]
7f0000001000-7f0000600000 rw-p 00000000 00:00 0
7f0001000000-7f0001400000 r--p 00000000 00:00 0
7f0002000000-7f0002400000 rw-p 00000000 fd:01 123                        /usr/lib/a file.so
7f0003000000-7f00031ff000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
"""
    monkeypatch.setattr(huge_pages, "_maps", maps.splitlines)
    assert [f"{place:x}" for place in huge_pages._places()] == [
        "555500000000", "555500200000", "7f0000200000", "7f0000400000",
    ]  # fmt: skip


def test_it_stops_when_somebody_comes() -> None:
    asked: list[int] = []

    def enough() -> bool:
        asked.append(1)
        return True

    assert huge_pages.gather(enough) == 0
    assert len(asked) <= 1


def test_a_linux_that_refuses_costs_nothing_but_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def madvise(*_: object) -> int:
        return -1

    libc = SimpleNamespace(madvise=madvise)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: libc)
    assert huge_pages.gather(lambda: False) == 0
