"""Escape sequences of logs: colours are told from what would command a terminal."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi.terminal_codes import keep_colours, remove_codes

RED, END = "\x1b[31m", "\x1b[0m"


@pytest.mark.parametrize(
    ("line", "text", "coloured"),
    [
        ("plain\ttext 损失", "plain\ttext 损失", "plain\ttext 损失"),
        (f"{RED}red{END}", "red", f"{RED}red{END}{END}"),
        ("\x1b[38;2;1;2;3mtrue\x1b[48:5:196m", "true", f"\x1b[38;2;1;2;3mtrue\x1b[48:5:196m{END}"),
        ("\x1b]52;c;ZWNobyBoaQ==\x07hi", "hi", "hi"),  # writes the clipboard
        ("\x1b]0;a title\x1b\\hi", "hi", "hi"),
        ("\x1b]8;;https://a.example\x1b\\link\x1b]8;;\x1b\\", "link", "link"),
        ("\x1b_fermi;{}\x1b\\hi\x1bPq\x1b\\", "hi", "hi"),
        ("\x1b[2J\x1b[H\x1b[1A\x1b[?25lhi\x1b[6n", "hi", "hi"),
        ("\x1b7\x1b8\x1bc\x1b(B\x1bMhi\x1b[!p", "hi", "hi"),
        (
            "bell\x07 feed\x0c null\0 shift\x0e delete\x7f\b",
            "bell feed null shift delete",
            "bell feed null shift delete",
        ),
        ("C1: \x9b31m é", "C1: 31m é", "C1: 31m é"),
        ("\x1b]52;c;never ends", "52;c;never ends", "52;c;never ends"),
        ("\x1b[31", "[31", "[31"),
        ("text\x1b", "text", "text"),
    ],
)
def test_only_colours_are_kept(line: str, text: str, coloured: str) -> None:
    assert remove_codes(line.encode()).decode() == text.replace("52;c;never", "]52;c;never")
    assert keep_colours(line) == coloured.replace("52;c;never", "]52;c;never")


@given(st.text(alphabet="\x1b[]0;mA\x07\\Pa\n\r"))
def test_nothing_is_left_that_commands_a_terminal(line: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", remove_codes(line.encode()).decode())
    left = re.sub(r"\x1b\[[0-9;:]*m", "", keep_colours(line))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", left)
    assert remove_codes(keep_colours(line).encode()) == remove_codes(line.encode())


@pytest.mark.parametrize("unit", [b"\x1b[", b"\x1b]", b"\x1b]a", b"\x1b[31;", b"\x1b_\x1b", b"\x1b[0m"])
def test_long_lines_take_linear_time(unit: bytes) -> None:
    def measure(count: int) -> float:
        best = 1.0
        for _ in range(3):
            begun = time.process_time()
            remove_codes(unit * count)
            best = min(best, time.process_time() - begun)
        return best

    assert measure(160_000) < 40 * measure(10_000) + 0.05
