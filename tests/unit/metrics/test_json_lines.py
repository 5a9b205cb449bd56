"""What a line of output says, and that no line can do harm."""

import json
import random

import pytest

from fermi.metrics.json_lines import (
    MAX_LINE_BYTES,
    PrintedEvent,
    find_candidates,
    find_epoch_line,
    parse_line,
)
from fermi.metrics.points import TEXT, Point


@pytest.mark.parametrize(
    ("line", "point"),
    [
        ('{"step": 10, "loss": 2.5, "time": 1763703000.5}', Point(10, {"loss": 2.5}, 1763703000.5)),
        ('{"step": 3.0, "tokens": 7}', Point(3, {"tokens": 7}, None)),
        ('{"step": 1, "loss": NaN, "a": Infinity}', Point(1, {"loss": None, "a": None}, None)),
        ('{"step": 1, "loss": -Infinity}', Point(1, {"loss": None}, None)),
        ('{"step": 1, "loss": null}', Point(1, {"loss": None}, None)),
        (
            '{"step": 1, "loss": 1, "ok": true, "phase": "warm", "more": {}, "many": [1]}',
            Point(1, {"loss": 1}, None),
        ),
        ('{"step": 1, "loss": 1, "event": 5}', Point(1, {"loss": 1, "event": 5}, None)),
        ('{"step": 1, "损失": 1}', Point(1, {"损失": 1}, None)),
        (
            "{'loss': 1.25, 'lr': 5e-05, 'epoch': 0.5}",
            Point(None, {"loss": 1.25, "lr": 5e-05, "epoch": 0.5}, None, TEXT),
        ),
        (
            "{'loss': nan, 'norm': -inf, 'epoch': 1.0}",
            Point(None, {"loss": None, "norm": None, "epoch": 1.0}, None, TEXT),
        ),
        ("{'loss': '1.25', 'epoch': '0.5', 'note': 'text'}", Point(None, {"loss": 1.25, "epoch": 0.5}, None, TEXT)),
        ("{'loss': 1.25, 'step': 7}", Point(7, {"loss": 1.25}, None, TEXT)),
    ],
)
def test_numbers_printed_with_a_step_are_a_point(line: str, point: Point) -> None:
    assert parse_line(line.encode()) == point


def test_an_object_with_an_event_is_an_event_even_with_a_step() -> None:
    found = {"event": "checkpoint", "step": 5, "path": "p", "more": [{"x": None}, True], "time": 7.5}
    assert parse_line(json.dumps(found).encode()) == PrintedEvent("checkpoint", found, 7.5)


@pytest.mark.parametrize(
    "line",
    [
        '{"loss": 1}',
        '{"step": 5}',
        '{"step": "5", "loss": 1}',
        '{"step": true, "loss": 1}',
        '{"step": -1, "loss": 1}',
        '{"step": 1e400, "loss": 1}',
        '{"step": 9223372036854775808, "loss": 1}',
        '{"step": ' + "9" * 6000 + ', "loss": 1}',
        '{"step": 1, "loss": 1',
        '{"event": ""}',
        '{"event": null}',
        '{"step"}',
        '{"event": ' + "[" * 30_000,
        '{"event": "deep", "x": ' + "[" * 20 + "]" * 20 + "}",
        "{'lr': 0.1, 'batch': 8}",
        "{'lr': 0.1, 'schedule': {'epoch': 3}}",
        "{'epoch': open}",
        "{'epoch': " + "[" * 30_000,
        "{'epoch': {[]: 1}}",
        "{'epoch'}",
        "{'event': 'started', 'step': 'x'}",
    ],
)
def test_other_lines_are_plain_log(line: str) -> None:
    assert parse_line(line.encode()) is None


def test_texts_that_a_database_refuses_are_sanitized() -> None:
    said = parse_line(rb'{"event": "a\u0000b", "c\ud800": "\udfff", "n": [1e999, 123456789012345678901234567890]}')
    assert said == PrintedEvent("a�b", {"event": "a�b", "c?": "?", "n": [None, None]}, None)


def test_truncated_and_random_bytes_are_plain_log() -> None:
    lot = random.Random(1)
    for _ in range(2000):
        line = bytearray(b'{"step": 1, "event": "x", "loss": 1.5}')
        for _ in range(lot.randrange(1, 4)):
            line[lot.randrange(len(line))] = lot.randrange(256)
        parse_line(bytes(line))


def test_the_first_line_of_a_trainer_is_found() -> None:
    line = b"{'loss': 1.0, 'epoch': 0.5}\n"
    before = b"INFO " + line + line[:-1] + b" of 3\n"
    assert find_epoch_line(before + line + line) == len(before)
    assert find_epoch_line(line) == 0
    assert find_epoch_line(before) == -1


def test_lines_that_start_with_a_brace_are_found_unless_too_long() -> None:
    long = b"{" + b"x" * MAX_LINE_BYTES
    exact = b"{" + b"x" * (MAX_LINE_BYTES - 2)
    text = b"{1}\nplain {0}\n {0}\n\n{2}\n" + long + b"\n" + exact + b"\n{3}\n"
    assert list(find_candidates(text)) == [b"{1}", b"{2}", exact, b"{3}"]
    assert list(find_candidates(b"")) == []


def test_a_dictionary_that_counts_more_than_epochs_is_left_to_the_reader_of_patterns() -> None:
    assert parse_line(b"{'epoch': 0, 'iter': 10, 'loss': 2.5}") is None
    assert isinstance(parse_line(b"{'epoch': 0, 'loss': 2.5}"), Point)
