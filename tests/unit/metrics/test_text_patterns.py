"""Curves from printed lines: one file per manner of printing, with the points that must come out; logs without metrics;
and that no line can do harm.

`manners/NAME.txt` has a log (`\\r`, `\\t`, `\\e` stand for themselves), a line `=== points`, and a line per point: the
step, then the values, `nan` for what is not finite.
"""

import json
import random
from pathlib import Path

import pytest
import re2

from fermi.metrics import text_lines
from fermi.metrics.text_patterns import CANDIDATE, MAX_STATE_BYTES, ROWS, Learner, TextPoint
from fermi.metrics.training_length import TrainingLength
from tests.unit.metrics.other_logs import build_logs

MANNERS = sorted((Path(__file__).parent / "manners").glob("*.txt"))
OTHER_LOGS = dict(build_logs())


def _read_manner(path: Path) -> tuple[bytes, list[tuple[int, dict[str, float | None]]]]:
    text, _, table = path.read_text("utf-8").partition("=== points\n")
    for escape, character in (("\\r", "\n"), ("\\t", "\t"), ("\\e", "\x1b")):
        text = text.replace(escape, character)
    points = []
    for line in table.splitlines():
        step, *values = line.split()
        pairs = (value.rpartition("=") for value in values)
        points.append((int(step), {name: None if value == "nan" else float(value) for name, _, value in pairs}))
    return text.encode(), points


def _feed(learner: Learner, pieces: list[bytes]) -> list[tuple[int, dict[str, float | None]]]:
    """Feed the pieces, each to a reader that begins anew with the stored state, and return all points."""
    points: list[TextPoint] = []
    for piece in pieces:
        learner = Learner(json.loads(json.dumps(learner.state)), plain=learner.plain, rows=learner.rows)
        points += learner.feed(piece)
    points += learner.flush()
    return [(one.step, {name: _round(value) for name, value in one.values.items()}) for one in points]


def _round(value: float | None) -> float | None:
    return value if value is None else float(f"{value:.12g}")


def test_there_are_forty_manners_and_two_hundred_other_logs() -> None:
    assert len(MANNERS) >= 40
    assert len(OTHER_LOGS) >= 200
    assert len(set(OTHER_LOGS.values())) > 190


@pytest.mark.parametrize("path", MANNERS, ids=lambda path: path.stem)
def test_each_manner_of_printing_gives_its_points(path: Path) -> None:
    text, points = _read_manner(path)
    assert points
    assert _feed(Learner(), text.splitlines(keepends=True)) == points


@pytest.mark.parametrize("path", MANNERS, ids=lambda path: path.stem)
def test_the_points_do_not_depend_on_how_a_log_is_cut(path: Path) -> None:
    text, points = _read_manner(path)
    lines = text.splitlines(keepends=True)
    cut = random.Random(path.stem).randrange(1, len(lines))
    assert sorted(_feed(Learner(), [b"".join(lines[:cut]), b"".join(lines[cut:])]), key=str) == sorted(points, key=str)


@pytest.mark.parametrize("path", MANNERS, ids=lambda path: path.stem)
def test_re2_finds_the_candidates_that_python_finds(path: Path) -> None:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    text, points = _read_manner(path)
    learner = Learner(plain=re2.compile(CANDIDATE, options), rows=re2.compile(ROWS, options))
    assert _feed(learner, text.splitlines(keepends=True)) == points


@pytest.mark.parametrize("name", OTHER_LOGS)
def test_a_log_without_metrics_has_no_curve(name: str) -> None:
    assert _feed(Learner(), [OTHER_LOGS[name].replace("\r", "\n").encode()]) == []


def test_the_logs_of_all_programs_one_after_another_have_no_curve() -> None:
    learner = Learner()
    for text in OTHER_LOGS.values():
        assert learner.feed(text.replace("\r", "\n").encode()) == []
        assert len(json.dumps(learner.state)) <= MAX_STATE_BYTES


def test_a_pattern_is_found_once_with_its_names_and_units() -> None:
    learner = Learner()
    learner.feed(b"iter 1: loss 4.1, time 12.3ms, mfu 3%\niter 2: loss 4.0, time 12ms, mfu 3%\n")
    assert learner.found == []
    learner.feed(b"iter 3: loss 3.9, time 12.5ms, mfu 4%\n")
    (found,) = learner.found
    assert found.template == "iter {iter}: loss {loss}, time {time}ms, mfu {mfu}%"
    assert found.example == "iter 3: loss 3.9, time 12.5ms, mfu 4%"
    assert found.units == {"loss": "", "time": "ms", "mfu": "%"}
    learner.feed(b"iter 4: loss 3.8, time 12.5ms, mfu 4%\n")
    assert learner.found == []


def _find_lengths(log: str, **length: int) -> list[tuple[int, int | None, float | None]]:
    learner = Learner(length=TrainingLength(**length))
    return [(one.step, one.total, one.seconds_left) for one in learner.feed(log.encode())]


def test_a_bar_of_the_whole_training_tells_of_how_many_steps_it_is_and_how_long_it_takes() -> None:
    log = "".join(f"{i}%|#| {i}/100 [00:05<01:30, 1.0it/s, loss=2.{i}]\n" for i in range(3))
    assert _find_lengths(log) == [(0, 100, 90.0), (1, 100, 90.0), (2, 100, 90.0)]


def test_the_time_left_of_an_epoch_is_not_that_of_the_training() -> None:
    log = "".join(f"Epoch {i}/4: 50%|#| 5/10 [00:05<01:30, 1.0it/s, loss=2.{i}]\n" for i in range(1, 4))
    assert _find_lengths(log) == [(5, 40, None), (15, 40, None)]
    log = "".join(f"Epoch: [0]  [ {i}/9]  eta: 0:00:01  loss: 1.{i} (1.8961)\n" for i in range(3))
    assert _find_lengths(log) == [(0, None, None), (1, None, None), (2, None, None)]
    assert _find_lengths(log, epochs=3) == [(0, 27, None), (1, 27, None), (2, 27, None)]


def test_lines_without_a_total_are_of_the_steps_that_arguments_say() -> None:
    log = "".join(f"iter {i}: loss 2.{i}, time 12ms\n" for i in range(3))
    assert _find_lengths(log, steps=200, epochs=3) == [(0, 200, None), (1, 200, None), (2, 200, None)]
    assert _find_lengths(log, steps=1) == [(0, 1, None), (1, 1, None), (2, None, None)]
    log = "".join(f"Epoch {i}: train_loss=2.{i}\n" for i in range(1, 4))
    assert _find_lengths(log, epochs=90) == [(1, 90, None), (2, 90, None), (3, 90, None)]


def test_batches_without_an_epoch_are_of_the_training_once_they_begin_anew() -> None:
    log = "".join(f"[{i}/3] loss=2.{i}{epoch}\n" for epoch in range(2) for i in (1, 2, 3))
    assert [total for _, total, _ in _find_lengths(log)] == [3, 3, 3, None, None, None]
    assert [total for _, total, _ in _find_lengths(log, epochs=5)] == [None, None, None, 15, 15, 15]


def test_an_evaluation_does_not_change_of_how_many_steps_the_training_is() -> None:
    log = "".join(
        f"step {i}/100: loss=2.{i}\nEvaluating: 50%|#| {i}/13 [00:05<01:30, 1.0it/s, val_loss=2.{i}]\n"
        for i in range(1, 5)
    )
    assert {total for _, total, _ in _find_lengths(log)} == {100, None}


def test_a_counter_that_does_not_grow_makes_no_pattern() -> None:
    assert Learner().feed(b"step 5: loss 2.5\nstep 4: loss 2.4\nstep 3: loss 2.3\nstep 3: loss 2.2\n") == []


def test_a_resumed_training_goes_on_with_lower_steps() -> None:
    log = b"".join(b"step %d: loss 2.%d\n" % (step, step) for step in (1, 2, 3, 4, 2, 3))
    assert [one.step for one in Learner().feed(log)] == [1, 2, 3, 4, 2, 3]


HOSTILE = {
    "spaces": (b"loss ", b" "),
    "equals": (b"step=", b"="),
    "brackets": (b"step 1 loss ", b"["),
    "bars": (b"loss %|", b"|"),
    "digits": (b"", b"1"),
    "commas": (b"loss ", b"1,111"),
    "fractions": (b"", b"1/"),
    "colons": (b"epoch 1:", b"00:"),
    "escapes": (b"loss ", b"\x1b["),
    "counters": (b"", b"step 1 "),
    "paths": (b"loss ", b"./"),
    "prefixes": (b"", b"[INFO] "),
    "invalid": (b"loss ", b"\xff"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("length", [text_lines.MAX_LINE_LENGTH - 1, 64 << 10, 1 << 20])
def test_no_line_takes_more_than_time_linear_in_its_length(name: str, length: int) -> None:
    """Reading a MiB in quadratic time would take longer than any test may."""
    begin, piece = HOSTILE[name]
    line = (begin + piece * length)[:length] + b"\n"
    learner = Learner()
    for _ in range(3):
        learner.feed(line)
    assert len(json.dumps(learner.state)) <= MAX_STATE_BYTES


def test_random_text_never_raises_and_keeps_the_state_small() -> None:
    chance = random.Random(39)
    pieces = [b"step ", b"loss", b"=", b": ", b"1", b"23.4", b"/", b" | ", b"[", b"]", b"%|", b"epoch ", b"nan", b"\n",
              b"\t", b"(", b")", b"\xe6\x8d\x9f\xe5\xa4\xb1", b"it/s", b"\x1b[0m", b"all ", b"Class ", b"-" * 15,
              b"00:01<", b"\xff", b"e5", b"1,000", b"k"]  # fmt: skip
    learner = Learner()
    for _ in range(300):
        learner.feed(b"".join(chance.choices(pieces, k=200)) + b"\n")
        assert len(json.dumps(learner.state)) <= MAX_STATE_BYTES


def test_processes_that_print_out_of_order_do_not_add_steps() -> None:
    places = [(epoch, batch) for epoch in (0, 1) for batch in (1, 2, 1, 3, 2, 4, 3, 4)]
    log = b"".join(b"Epoch: [%d][%d/4] Loss %d.5\n" % (epoch, batch, batch) for epoch, batch in places)
    steps = [one.step for one in Learner().feed(log)]
    assert set(steps) >= {5, 6, 7, 8}
    assert max(steps) == 8


def test_a_training_of_many_steps_that_was_resumed_within_one_log_goes_on_with_lower_steps() -> None:
    log = b"".join(b" iteration %8d/ 159576 | lm loss: 2.%d\n" % (step, step) for step in (10, 20, 30, 40, 20, 30))
    assert [one.step for one in Learner().feed(log)] == [10, 20, 30, 40, 20, 30]
    log = b"".join(b"iter %d/40 loss 2.%d\n" % (step, step) for step in (10, 20, 30, 40, 10, 20))
    assert [one.step for one in Learner().feed(log)] == [10, 20, 30, 40, 50, 60]
