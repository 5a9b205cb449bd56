"""Progress bars without values, in which a script's progress can be seen: `12%|█▏  | 510/4200 [01:02<07:10, 8.57it/s]`.
Pure.

Most bars are no training: downloads, tokenizing, evaluations, the batches of one epoch. A bar is the training's if

* it counts to the number of steps that is known (a Trainer's, `--max_steps`), or
* it is called `Steps` (diffusers' examples), or
* it grows as the optimizer's steps do, and does not begin anew.

The format is tqdm's (`std.py`, `format_meter`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fermi.metrics.text_lines import parse_duration
from fermi.terminal_codes import remove_codes

MAX_BARS = 8
"""States of bars that are looked at in what was printed since the last time; the newest ones."""
MAX_BYTES = 16 << 10
MIN_COMMON_STEPS = 10
"""Steps of the optimizer in which a bar has to grow as they do."""
_BAR = re.compile(
    rb"([^\r\n]{0,200}?)(?:: {0,4})?\d{1,3}%\|[^|\r\n]{0,400}\| {0,12}(\d{1,15})/(\d{1,15}) "
    rb"\[\d{1,4}(?::\d\d){1,2}<(\d{1,4}(?::\d\d){1,2}|\?)"
)
_OTHER = re.compile(
    r"eval|valid|test|predict|download|fetch|load|map|token|filter|generat|process|scan|cach|sampl|shard|file|epoch"
    r"|评估|验证|测试|下载|加载|处理|轮",
    re.IGNORECASE,
)
_STEPS = re.compile(r"(?:(?:global|train|training|total|optimi[sz]er)[ _]?)?steps?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bar:
    """A state of a bar. `seconds_left`: as it says; None: it does not know."""

    description: str
    position: int
    total: int
    seconds_left: float | None

    @property
    def key(self) -> tuple[str, int]:
        """Return what the states of one bar have in common."""
        return self.description, self.total


def find_bars(text: bytes) -> list[Bar]:
    """Return the newest states of the bars in what was printed, the newest first."""
    return list(_iterate_bars(text[-MAX_BYTES:])) if b"%|" in text else []


def _iterate_bars(text: bytes) -> Iterator[Bar]:
    end = len(text)
    for _ in range(MAX_BARS):
        at = text.rfind(b"%|", 0, end)
        if at < 0:
            return
        begin = max(text.rfind(b"\n", 0, at), text.rfind(b"\r", 0, at)) + 1
        stop = text.find(b"\n", at)
        line = remove_codes(text[begin : stop if stop >= 0 else len(text)])
        end = begin
        if found := _BAR.match(line.lstrip()):
            left = found[4].decode()
            yield Bar(
                found[1].decode("utf-8", "replace").strip(": "), int(found[2]), int(found[3]),
                None if left == "?" else parse_duration(left),
            )  # fmt: skip


class BarFollower:
    """Finds the bar that shows a training's progress. `bar`: its newest state, at `time`; None: there is none yet."""

    def __init__(self) -> None:
        self.bar: Bar | None = None
        self.time = 0.0
        self._newest: Bar | None = None
        self._reference: tuple[Bar, int] | None = None  # a state, and the optimizer's steps then
        self._accepted: tuple[str, int] | None = None
        self._rejected = set[tuple[str, int]]()

    def add(self, found: list[Bar], time: float, steps: int | None) -> None:
        """Add states of bars that were printed. `steps`: of how many steps the training is, where that is known."""
        for bar in found:
            if _OTHER.search(bar.description) or bar.total < 2 or bar.position > bar.total:
                continue
            named = steps is None and _STEPS.fullmatch(bar.description) and bar.key not in self._rejected
            if bar.total == steps or named or bar.key == self._accepted:
                if self.bar and bar.position < self.bar.position and bar.total != steps:
                    self._reject(bar)
                    continue
                self.bar, self.time = bar, time
                return
            if steps is None and bar.key not in self._rejected:
                if self._newest and bar.key == self._newest.key:
                    if bar.position < self._newest.position:
                        self._reject(bar)
                        continue
                else:
                    self._reference = None
                self._newest = bar
                return

    def compare_steps(self, count: int) -> None:
        """Compare the bar that is not accepted yet with the steps that optimizers have made."""
        if not self._newest:
            return
        if self._reference is None or count < self._reference[1]:
            self._reference = self._newest, count
            return
        begun, first = self._reference
        steps, grown = count - first, self._newest.position - begun.position
        if steps >= MIN_COMMON_STEPS and abs(steps - grown) <= 2 + 0.2 * steps:
            self._accepted = self._newest.key
            self.bar, self._newest = self._newest, None

    def _reject(self, bar: Bar) -> None:
        """Leave a bar out that began anew: it counts the batches of an epoch."""
        self._rejected.add(bar.key)
        self._accepted = None if bar.key == self._accepted else self._accepted
        self.bar, self._newest, self._reference = None, None, None
        if len(self._rejected) > 100:
            self._rejected.clear()
