"""Bars that move the cursor up end as one line each, wherever and however often a log is read."""

import io
import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from fermi.cursor_movements import (
    MAX_REACH_BYTES,
    NO_GROUP,
    GroupState,
    LineReader,
    RenderedLine,
    render_groups,
)

UP = "\x1b[A"


class Output(io.StringIO):
    """Keeps how much was written at each flush, which is what someone may read meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def flush(self) -> None:
        self.sizes.append(len(self.getvalue().encode()))


def read(data: bytes, begin: int = 0, state: GroupState = NO_GROUP, *, last: bool = True) -> Iterator[RenderedLine]:
    reader = LineReader(data[begin:], begin, state)
    yield from (line for line in reader if isinstance(line, RenderedLine))
    if reader.group is not None:
        reader.group.write(begin + reader.begin, reader.rest)
        yield from reader.group.pop_settled_rows(len(data), len(data), everything=last)


def follow(data: bytes, sizes: list[int]) -> tuple[list[RenderedLine], list[list[str]]]:
    """Return the lines as someone sees them who reads at each of these sizes, and the open rows each time."""
    lines: list[RenderedLine] = []
    screens: list[list[str]] = []
    begin, state = 0, NO_GROUP
    for size in sizes:
        reader = LineReader(data[begin:size], begin, state)
        for line in reader:
            if isinstance(line, RenderedLine):
                lines.append(line)
                begin, state = line.following, line.group
        if reader.group is not None:
            reader.group.write(reader.base + reader.begin, reader.rest)
            lines += reader.group.pop_settled_rows(size, size)
            begin, state = reader.group.find_place()
            screens.append(reader.group.render()[1].decode().split("\n"))
        else:
            state = NO_GROUP
    return [*lines, *read(data, begin, state)], screens


def texts(lines: list[RenderedLine]) -> list[str]:
    """Without figures and colours."""
    shown = (re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line.text.decode()).split("|")[0].split("━")[0] for line in lines)
    return [text.strip() for text in shown if text.strip()]


def check(out: Output) -> tuple[list[str], list[list[str]]]:
    """Return what is shown in the end, and all open rows, after checking what holds for every log."""
    data = out.getvalue().encode()
    whole = list(read(data))
    offsets = [line.offset for line in whole]
    assert offsets == sorted(set(offsets))
    for number, line in enumerate(whole):
        rest = [(later.offset, later.text) for later in read(data, line.following, line.group)]
        assert rest == [(later.offset, later.text) for later in whole[number + 1 :]]
    followed, screens = follow(data, out.sizes)
    # Only the rows of the first frame may come as lines: nothing says yet that the cursor will go up.
    seen = [(line.offset, line.text) for line in followed if line.text]
    assert [line for line in seen if line in {(line.offset, line.text) for line in whole}] == [
        (line.offset, line.text) for line in whole if line.text
    ]
    assert len(seen) <= len([line for line in whole if line.text]) + 3
    return texts(whole), screens


@pytest.fixture
def bar() -> Any:
    tqdm = pytest.importorskip("tqdm").tqdm
    return lambda *args, **more: tqdm(*args, mininterval=0, ncols=60, **more)


@pytest.mark.parametrize(("leave", "kept"), [(False, []), (True, ["steps: 100%"])])
def test_nested_bars_of_tqdm_are_a_line_each(bar: Any, leave: bool, kept: list[str]) -> None:
    out = Output()
    for _ in bar(range(3), file=out, desc="epochs"):
        for step in bar(range(40), file=out, desc="steps", leave=leave):
            if step == 20:
                pytest.importorskip("tqdm").tqdm.write("half", file=out)
    out.write("after\n")
    shown, screens = check(out)
    assert shown == [*["half", *kept] * 3, "epochs: 100%", "after"]
    assert any(
        len(rows) == 2 and rows[0].startswith("epochs:  33%") and rows[1].startswith("steps:  50%") for rows in screens
    )


def test_three_levels_of_bars_end_as_the_outermost(bar: Any) -> None:
    out = Output()
    for _ in bar(range(2), file=out, desc="a"):
        for _ in bar(range(2), file=out, desc="b", leave=False):
            for _ in bar(range(5), file=out, desc="c", leave=False):
                pass
    out.write("after\n")
    shown, screens = check(out)
    assert shown == ["a: 100%", "after"]
    assert max(map(len, screens)) == 3


def test_bars_at_four_positions_are_four_lines(bar: Any) -> None:
    out, chance = Output(), random.Random(1)
    bars = [bar(total=30, file=out, desc=f"bar {place}", position=place) for place in range(4)]
    for place in chance.sample([0, 1, 2, 3] * 30, 120):
        bars[place].update()
    for one in bars:
        one.close()
    out.write("after\n")
    shown, screens = check(out)
    assert sorted(shown) == ["after", *(f"bar {place}: 100%" for place in range(4))]
    assert len(screens[-1]) == 4


def test_bars_of_threads_are_a_line_each(bar: Any) -> None:
    out = Output()

    def work(number: int) -> None:
        for _ in bar(range(40), file=out, desc=f"shard {number}"):
            pass

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(6)))
    out.write("after\n")
    shown = texts(list(read(out.getvalue().encode())))
    assert sorted({*shown}) == ["after", *(f"shard {number}: 100%" for number in range(6))]


def test_richs_live_display_is_a_line_for_each_row() -> None:
    out = Output()
    console = Console(file=out, force_terminal=True, width=50)
    with Progress(console=console, auto_refresh=False) as progress:
        first, second = progress.add_task("load", total=9), progress.add_task("train", total=9)
        for step in range(9):
            progress.advance(first)
            progress.advance(second)
            progress.refresh()
            if step == 4:
                console.print("half")
            if step == 6:
                progress.add_task("late", total=3)
    console.print("after")
    shown, screens = check(out)
    assert shown == ["half", "load", "train", "late", "after"]
    assert max(map(len, screens)) == 3


def test_rows_that_are_written_in_turns_are_a_line_each() -> None:
    """As `docker pull` does: up to the row, and down again."""
    out = Output()
    out.write("layer 1: wait\nlayer 2: wait\nlayer 3: wait\n")
    for percent in range(5):
        for row in (1, 2, 3):
            out.write(f"\x1b[{4 - row}A\x1b[2K\rlayer {row}: {percent}|\r\x1b[{4 - row}B")
            out.flush()
    out.write("after\n")
    data = out.getvalue().encode()
    assert texts(list(read(data))) == ["layer 1: 4", "layer 2: 4", "layer 3: 4", "after"]


def test_what_a_script_prints_into_its_bars_is_a_line() -> None:
    shown = texts(list(read(f"\repochs|\n\rsteps 1|{UP}\n\rsteps 2|{UP}Traceback:\n  File\n".encode())))
    assert shown == ["Traceback:", "File"]


def test_everything_below_is_erased_with_ed() -> None:
    assert [line.text for line in read(b"a\nb\nc\x1b[2A\r\x1b[Jone\ntwo\nthree\nend\n")] == [
        b"one", b"two", b"three", b"end",
    ]  # fmt: skip


def test_a_state_that_is_far_behind_is_a_line_so_that_reading_on_begins_near() -> None:
    inner = "".join(f"\n\rstep {step:09}|{UP}" for step in range(2 * MAX_REACH_BYTES // 20))
    data = f"begin\n\repoch 1|{inner}\repoch 2|{inner}".encode()
    assert texts(list(read(data, last=False))) == ["begin", "epoch 1", "epoch 2"]
    reader = LineReader(data, 0)
    assert len(list(reader)) == 3
    assert reader.group is not None
    assert len(data) - reader.group.find_place()[0] <= MAX_REACH_BYTES


def test_a_log_is_rendered_piece_by_piece(bar: Any) -> None:
    out = Output()
    for _ in bar(range(20), file=out, desc="epochs"):
        for _ in bar(range(40), file=out, desc="steps", leave=False):
            pass
    out.write("after\nlast")
    data, rest, state, shown = out.getvalue().encode(), b"", NO_GROUP, b""
    for begin in range(0, len(data), 1000):
        rest += data[begin : begin + 1000]
        piece, used, state = render_groups(rest, state, last=begin + 1000 >= len(data))
        shown, rest = shown + piece, rest[used:]
    assert [line.split(b"|")[0] for line in (shown + rest).split(b"\n")] == [b"epochs: 100%", b"after", b"last"]


@given(
    st.lists(st.sampled_from(["a", "b\r", "\n", UP, "\x1b[2A", "\x1b[B", "\x1b[2K", "\x1b[J", "\x1b[31m", " "])),
    st.data(),
)
def test_any_codes_give_growing_offsets_and_can_be_read_on_from_every_line(parts: list[str], given_: Any) -> None:
    data = "".join(parts).encode()
    lines = list(read(data))
    offsets = [line.offset for line in lines]
    assert offsets == sorted(offsets)
    if lines:
        number = given_.draw(st.integers(0, len(lines) - 1))
        rest = [line.text for line in read(data, lines[number].following, lines[number].group) if line.text]
        assert rest == [line.text for line in lines[number + 1 :] if line.text]


@pytest.mark.parametrize("unit", [f"\n\rs|{UP}", UP, f"x{UP}", f"\n\n\ra{UP}{UP}", "\n", f"{UP}\n\n"])
def test_long_logs_take_linear_time(unit: str) -> None:
    def measure(count: int) -> float:
        data, best = unit.encode() * count, 9.0
        for _ in range(3):
            begun = time.process_time()
            list(read(data))
            best = min(best, time.process_time() - begun)
        return best

    assert measure(16_000) < 40 * measure(1_000) + 0.1
