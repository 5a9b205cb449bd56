"""Of a line that is printed over, what a terminal shows is left."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi.carriage_returns import find_newest_state, render_lines
from fermi.runner.record_frames import format_frame

FRAME = format_frame(b'{"values":{"a":1}}', own_line=False).decode()
ROW = "\x1b[31m"


@pytest.mark.parametrize(
    ("line", "begin", "shown"),
    [
        ("plain", 0, "plain"),
        ("  indented  ", 0, "  indented  "),
        ("", 0, ""),
        ("\r 1%|#  |\r 2%|## |", 10, " 2%|## |"),
        ("10%\r20%\r", 4, "20%"),  # print(…, end="\r")
        ("a line of Windows\r", 0, "a line of Windows"),
        ("\r", 0, ""),
        ("\r100%\rdone  ", 6, "done"),  # padded, as tqdm does
        ("\r100%\r      ", 6, ""),  # tqdm with leave=False: erased
        ("\r 9%|# |\r         \r{'loss': 0.5}", 19, "{'loss': 0.5}"),  # the Trainer's own lines
        ("99%\r\x1b[K100%", 4, "100%"),
        ("99%\r\x1b[2K100%", 4, "100%"),
        ("99%\r\x1b[K", 4, ""),
        ("half\x1b[2Knew", 0, "new"),
        ("one\x1b[1Ktwo\x1b[Kthree\x1b[2Knew\x1b[0K", 0, "new"),
        (f"1%\r{ROW}2%\x1b[0m\r\x1b[0m", 3, f"{ROW}2%\x1b[0m"),  # a colour alone shows nothing
        ("|\b/\b-", 0, "-"),
        ("1/9 [.]\b\b\b\b\b\b\b\r2/9 [=]", 15, "2/9 [=]"),  # Keras
        ("é 1\b2", 0, "é 2"),
        ("x\b\b\by", 0, "y"),
        (f"a{FRAME}b", 0, "ab"),
        (f"\r 1%{FRAME}\r{FRAME} 2%{FRAME}", 33, " 2%"),
        (f"\r 1%\r{FRAME}", 1, " 1%"),  # a frame alone shows nothing
    ],
)  # fmt: skip
def test_the_newest_state_of_a_line_is_returned(line: str, begin: int, shown: str) -> None:
    assert find_newest_state(line.encode()) == (begin, shown.encode())


def test_codes_that_erase_nothing_are_searched_once() -> None:
    codes = b"\x1b[" * 500_000
    assert find_newest_state(codes) == (0, codes)


def test_each_line_has_its_newest_state() -> None:
    assert render_lines(b"a\r\n 1%\r 2%\nb\n") == b"a\n 2%\nb\n"
    plain = b"as it is\n\x00\xff\n"
    assert render_lines(plain) is plain


def test_tqdm_bars_are_shown_in_their_final_state() -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    out = io.StringIO()
    for kept in (True, False):
        with tqdm(total=50, file=out, mininterval=0, leave=kept, ncols=60) as bar:
            for step in range(50):
                bar.set_postfix(loss=step)
                bar.update()
                if step == 25:
                    tqdm.write("half", file=out)
    lines = render_lines(out.getvalue().encode()).decode().split("\n")
    first, full, second, last = lines
    assert (first, second, last) == ("half", "half", "")
    assert full.startswith("100%|")
    assert "loss=49" in full


@given(st.binary(), st.binary())
def test_it_never_raises_and_earlier_text_does_not_matter(before: bytes, line: bytes) -> None:
    line = line.replace(b"\n", b"")
    begin, shown = find_newest_state(line)
    assert begin == 0 or line[begin - 1 : begin] == b"\r"
    assert find_newest_state(line[begin:])[1].rstrip(b" ") == shown.rstrip(b" ")
    if begin:
        behind = before.replace(b"\n", b"") + line[begin - 1 :]
        assert find_newest_state(behind) == (len(behind) - len(line) + begin, shown)
