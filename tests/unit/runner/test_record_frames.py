"""Frames in a log: taken out, wherever the log is cut."""

import pytest

from fermi.runner.record_frames import (
    MAX_FRAME_BYTES,
    FrameFilter,
    find_line_end,
    find_partial_frame,
    format_frame,
    iterate_frames,
    skip_frames,
    strip_frames,
)

RECORD = b'{"source":"wandb","values":{"loss":1.5}}'
WITHIN, OWN_LINE = (format_frame(RECORD, own_line=own) for own in (False, True))
LOG = OWN_LINE + b"one\n" + OWN_LINE * 2 + b"\r 10%" + WITHIN + b"\r 11%" + WITHIN * 2 + b"\nlast"
PRINTED = b"one\n\r 10%\r 11%\nlast"


def test_without_frames_a_log_is_what_was_printed():
    assert strip_frames(LOG) == PRINTED
    assert [record for *_, record in iterate_frames(LOG)] == [RECORD] * 6
    assert all(LOG[begin:end] in (WITHIN, OWN_LINE) for begin, end, _ in iterate_frames(LOG))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 64])
def test_a_log_that_comes_in_pieces_is_the_same(size):
    filtered = FrameFilter()
    pieces = [filtered.feed(LOG[at : at + size]) for at in range(0, len(LOG), size)]
    assert b"".join([*pieces, filtered.feed(b"", last=True)]) == PRINTED


@pytest.mark.parametrize("frame", [WITHIN, OWN_LINE])
def test_a_frame_that_is_not_complete_is_found_at_any_cut(frame):
    for cut in range(1, len(frame)):
        assert find_partial_frame(b"text" + frame[:cut]) == 4
        assert strip_frames(b"text" + frame[:cut], torn=True) == b"text"
    assert find_partial_frame(b"text" + frame) == 4 + len(frame)


def test_a_tail_that_begins_within_a_frame_loses_its_rest():
    for cut in range(1, len(WITHIN)):
        assert strip_frames(WITHIN[cut:] + b"text", torn=True) == b"text"
    assert strip_frames(b"some text\n" + OWN_LINE, torn=True) == b"some text\n"


def test_the_line_feed_of_a_frame_ends_no_line():
    torn = b"half" + OWN_LINE + b" and half\nnext"
    assert find_line_end(torn, 0) == torn.index(b"\nnext")
    assert find_line_end(b"half" + OWN_LINE, 0) == -1
    assert find_line_end(b"one\ntwo\n", 4) == 7
    assert skip_frames(OWN_LINE + WITHIN + b"x", 0) == len(OWN_LINE + WITHIN)


@pytest.mark.parametrize(
    "text",
    [
        b"\x1b_fermi;no end\n", b"\x1b_fermi;{\r}\x1b\\", b"\x1b_other;{}\x1b\\", b"\x1b_fermi:{}\x1b\\x",
        b"\x1b_fermi;{" + b"x" * MAX_FRAME_BYTES + b"}\x1b\\", b"\x1b]8;;http://x\x1b\\link",
    ],
)  # fmt: skip
def test_what_is_no_frame_stays(text):
    assert strip_frames(text + b"\n") == text + b"\n"
    assert not [*iterate_frames(text)]


@pytest.mark.parametrize(
    "record", [b"{}", b"[1]", b'{"a":"\n"}', b'{"a":"\x1b"}', "{'ä'}".encode(), b"{%b}" % (b"x" * 3500)]
)
def test_a_record_that_a_frame_cannot_hold_gives_none(record):
    assert format_frame(record, own_line=True) == b""
