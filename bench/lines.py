"""What the readers of lines cost, in this process: lines that are no candidates for metrics, compared with three
searches for the beginnings of lines (what was read before lines for people were learned); lines of nanoGPT and of
ImageNet's example; lines that look like metrics and are none.
"""

import time
from collections.abc import Callable, Iterator

import re2

from bench.table import Figure, FigureTarget
from fermi.metrics import json_lines
from fermi.metrics.text_patterns import CANDIDATE, ROWS, Learner

ROUNDS = 15
SIZE = 256 << 10
"""Bytes of a text: what a pass reads at most."""


def measure() -> Iterator[Figure]:
    plain = _build_text("rank 3 step {0} line {0} 4999950000 0123456789 abcdefghij 0123456789 abcdefghij 0123456789")
    before, now = _measure(plain, _search_beginnings), _measure(plain, _read)
    yield Figure("a line that is no candidate", now, "µs", before, "three searches")
    twice, both = _measure(plain, _search_beginnings, 2), _measure(plain, _read_and_find_epoch)
    yield Figure(
        "the same, with the search for a Trainer's line, as in every pass", both, "µs", twice, "before",
        FigureTarget(1.1, applies_to="ratio"),
    )  # fmt: skip
    nanogpt = _build_text("iter {0}: loss 2.{0}, time 12.30ms, mfu 3.2%")
    yield Figure("a line of nanoGPT", _measure(nanogpt, _read), "µs")
    bars = "\tLoss 6.1e+00 (6.55e+00)\tAcc@1   1.56 (  0.40)\tAcc@5   3.12 (  1.50)"
    imagenet = _build_text("Epoch: [0][{0}/900000]\tTime  0.131 ( 0.231)\tData  0.000 ( 0.123)" + bars)
    yield Figure("a line of ImageNet's example", _measure(imagenet, _read), "µs")
    near = _build_text("step {0}: done in 3.2 seconds, cache={0}")
    yield Figure("a line that looks like one and is none", _measure(near, _read), "µs")


def _build_text(line: str) -> bytes:
    count = SIZE // len(line.format(1000))
    return "".join(f"{line.format(number)}\n" for number in range(count)).encode()


def _measure(text: bytes, read: Callable[[bytes], object], times: int = 1) -> float:
    """Return the microseconds of processor time that a line takes, the best of several rounds."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(times):
            read(text)
        took.append(time.process_time() - began)
    return min(took) / text.count(b"\n") * 1e6


def _search_beginnings(text: bytes) -> object:
    text = b"\n" + text
    return [text.find(beginning) for beginning in (b"\n{", b"\niter ", b"\nstep ")]


def _read(text: bytes) -> object:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    plain, rows = (re2.compile(expression, options) for expression in (CANDIDATE, ROWS))
    return [*json_lines.find_candidates(text), *Learner(plain=plain, rows=rows).feed(text)]


def _read_and_find_epoch(text: bytes) -> object:
    json_lines.find_epoch_line(text)
    return _read(text)
