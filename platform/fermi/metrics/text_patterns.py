"""Finds curves in what scripts print, without a list of programs: a **pattern** is a shape of lines (`text_lines`) or a
table (`text_tables`) that repeated with a growing counter.

    iter 10: loss 4.2310, time 12.30ms, mfu 3.2%        →  step 10: loss 4.231, time 12.3 (ms), mfu 3.2 (%)
    Epoch: [0][ 10/100]  Loss 6.9e+00 (6.95e+00)        →  step 10: loss 6.9, loss_avg 6.95

A pattern is accepted when MIN_REPEATS of its lines had ever higher counters; the points of these first lines are given
out then. Lines of evaluations without a counter belong to the last step of training. Where lines name ranks, those of
the lowest rank count. Counters of an epoch's batches become one growing step.

`Learner.state` is JSON of at most MAX_STATE_BYTES: it is stored with the position in the log, so that a reader that
begins anew finds the same points. Reading costs as much as a search in C for lines without candidates, and time linear
in the line for the others.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fermi.metrics import json_lines, text_lines, text_tables
from fermi.metrics.text_lines import BATCH, EPISODE, EPOCH, ITERATION, POSITION, STEP
from fermi.metrics.training_length import UNKNOWN, TrainingLength

MIN_REPEATS = 3
MAX_STATE_BYTES = 8 << 10
MAX_ACCEPTED, MAX_UNACCEPTED = 16, 24
MAX_EXAMPLE_LENGTH = 300
MAX_VALUES = 40

CANDIDATE = (
    rb"(?i)(?:step|iter|epoch|episode|update|batch)[^\n]*[=:]|loss|acc(?:@|u|[ :=_])|reward|perplex|ppl|%\||\dit \["
    rb"|rmse|recall|psnr|\n\[?\d{1,9}[\]:]\t|\n\{'(?:epoch|iter)|epoch\W{0,3}\d|\n\s?\||\n-{12}"
    rb"|\d{1,9}/\d{1,9} (?:\[[=>]|\xe2\x94|\xe2\x95)|\[ {0,9}\d{1,9}/ {0,9}\d{1,9}\]"
    rb"|\xe6\x8d\x9f\xe5\xa4\xb1|\xe6\xad\xa5|\xe8\xbd\xae|\xe5\x9b\x9e\xe5\x90\x88"
)
"""Expression that finds lines which may be of metrics; RE2 searches it at a gigabyte per second. The last four: 损失,
步, 轮, 回合."""
ROWS = CANDIDATE + rb"|\n(?:\x1b\[K)?[ \t|]*(?:\d|all )"
"""The same while a table is open: its rows have nothing but numbers."""


class Expression(Protocol):
    """A compiled expression of `re` or RE2."""

    def search(self, text: bytes, pos: int = 0, /) -> Any: ...


_PLAIN, _PLAIN_ROWS = (re.compile(one.replace(rb"[^\n]*[=:]", b"")) for one in (CANDIDATE, ROWS))
"""For `re`, which would take quadratic time to look for what comes later in a line: more lines are candidates."""


@dataclass(frozen=True, slots=True)
class TextPoint:
    """Values of one line. `pattern`: the key of its pattern; `total`: of how many steps the training is, if lines say
    that; `seconds_left` of the training, as a bar or a line says that shows all of it and not one epoch."""

    step: int
    values: Mapping[str, float | None]
    pattern: str
    total: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class FoundPattern:
    """A pattern that was accepted now. `template`: the line with names in braces; `units` by name."""

    key: str
    template: str
    example: str
    units: Mapping[str, str]


@dataclass(slots=True)
class _Observation:
    """A line, a row or a block in the same terms. `counters`: (kind, position, total), as they stand in the line."""

    key: str
    counters: Sequence[tuple[int, int, int]]
    values: dict[str, float | None]
    usable: bool
    split: str
    rank: int | None
    seconds_left: float | None
    text: str
    template: Any
    units: Any
    known: bool = False
    bar: bool = False


class KnownPattern(Protocol):
    """A pattern that a project gives (`known_patterns`)."""

    @property
    def key(self) -> str: ...
    @property
    def template(self) -> str: ...
    @property
    def first(self) -> bytes: ...

    def match(self, text: str) -> tuple[list[tuple[int, int, int]], dict[str, float | None]] | None:
        """Return the counters and values of a line; None if it is of another shape."""


@dataclass(slots=True)
class Learner:
    """Reader of one log. `state`: what it knows, JSON; `found`: patterns accepted since the last call of `feed`;
    `length`: of how many steps and epochs the training is, where that is known from elsewhere."""

    state: dict[str, Any] = field(default_factory=dict)
    known: Sequence[KnownPattern] = ()
    plain: Expression = _PLAIN
    rows: Expression = _PLAIN_ROWS
    found: list[FoundPattern] = field(default_factory=list)
    length: TrainingLength = UNKNOWN
    _points: list[TextPoint] = field(default_factory=list)

    def feed(self, text: bytes) -> list[TextPoint]:
        """Return the points of whole lines, each ended by a line feed. Never raises for what lines say."""
        self.found, self._points = [], []
        touched = False
        for line in self._find_candidates(b"\n" + text):
            touched = True
            self._read(line)
        if touched:
            self._bound_state()
        return self._points

    def flush(self) -> list[TextPoint]:
        """Return the points that waited for the next line, at the end of a log."""
        self._points = []
        if block := self.state.pop("block", None):
            self._end_block(block)
        self._release()
        return self._points

    def _find_candidates(self, text: bytes) -> Iterator[bytes]:
        at, size = 0, len(text)
        ahead = {one.first: text.find(one.first) for one in self.known}
        while at < size:
            found = (self.rows if "table" in self.state else self.plain).search(text, at)
            begin = found.start() if found else size
            if ahead:
                begin = min([begin, *(place for place in ahead.values() if place >= 0)])
            if begin >= size:
                return
            start = begin + 1 if text[begin] == 10 else text.rfind(b"\n", 0, begin) + 1
            end = text.find(b"\n", start)
            end = end if end >= 0 else size
            if end - start <= text_lines.MAX_LINE_LENGTH and (
                text[start : start + 1] != b"{" or json_lines.is_counted_dict(text[start:end])
            ):
                yield text[start:end]
            at = end
            for first, place in ahead.items():
                if 0 <= place < at:
                    ahead[first] = text.find(first, at)

    def _read(self, line: bytes) -> None:
        for text in text_lines.split_glued_lines(text_lines.clean_text(line)):
            self._read_text(text)

    def _read_text(self, text: str) -> None:
        if self.known and self._read_known(text):
            return
        stripped = text.strip()
        if stripped.startswith(("|", "---")) and self._read_block(stripped):
            return
        if (table := self.state.get("table")) and self._read_row(table, text):
            return
        parsed = text_lines.parse_line(text)
        if parsed is None or not parsed.values:
            header = text_tables.parse_header(text_lines.cut_table_bar(text_lines.strip_prefix(text)[0])[0])
            if header:
                self.state["table"] = header
                return
        if parsed is None:
            return
        counters = []
        for counter in parsed.shape.counters:
            place = text_lines.parse_position(parsed.tokens[counter.index])
            counters.append((counter.kind, *place) if place else (counter.kind, -1, 0))
        shape = parsed.shape
        if not parsed.values:
            self._note_heading(shape.key, counters, indented=text[:1] in (" ", "\t", "-"))
            return
        named = shape.listed or any(kind == EPOCH or kind >= ITERATION for kind, *_ in counters)
        usable = shape.strong or (
            named and any(not one.weak and "." in parsed.tokens[one.index] for one in shape.measures)
        )
        self._observe(
            _Observation(
                shape.key, counters, parsed.values, usable, shape.split, parsed.rank, parsed.seconds_left, stripped,
                parsed.template, lambda: {one.name: one.unit for one in shape.measures}, bar="%|" in text,
            )
        )  # fmt: skip

    def _read_known(self, text: str) -> bool:
        for one in self.known:
            matched = one.match(text)
            if matched is not None:
                rank = text_lines.strip_prefix(text)[1]
                seen = _Observation(
                    one.key, matched[0], matched[1], True, "", rank, None, text.strip(), lambda: "", dict, known=True
                )
                seen.template = lambda template=one.template: template
                self._observe(seen)
                return True
        return False

    def _read_block(self, text: str) -> bool:
        block = self.state.get("block")
        if text_tables.is_rule(text):
            if block:
                del self.state["block"]
                self._end_block(block)
            return block is not None or not text.startswith("|")
        if "table" in self.state or not text.endswith("|"):
            return False
        block = block if block is not None else {}
        if not text_tables.add_to_block(block, text):
            return False
        self.state["block"] = block
        return True

    def _end_block(self, block: Mapping[str, Any]) -> None:
        row = text_tables.parse_block(block)
        if row:
            self._observe_row(row, "")

    def _read_row(self, table: dict[str, Any], text: str) -> bool:
        body, position = text_lines.cut_table_bar(text_lines.strip_prefix(text)[0])
        row = text_tables.parse_row(table, body, position)
        if row is None:
            if text.lstrip(" |")[:1].isdigit() and not text_tables.is_rule(text):
                table["misses"] += 1
                if table["misses"] > text_tables.MAX_MISSES:
                    del self.state["table"]
            return False
        self._observe_row(row, text.strip())
        return True

    def _observe_row(self, row: text_tables.Row, text: str) -> None:
        self._observe(
            _Observation(
                row.key, row.counters, row.values, row.strong, "", None, None, text or row.template,
                lambda: row.template, lambda: row.units,
            )
        )  # fmt: skip

    def _note_heading(self, key: str, counters: Sequence[tuple[int, int, int]], indented: bool) -> None:
        """Keep the counters of a line without measures: lines without counters below it are of its step, else of its
        epoch. `key`: of the line's shape, as trainings and evaluations have headings of their own."""
        if any(place < 0 for _, place, _ in counters):
            return
        if steps := [one for one in counters if one[0] >= ITERATION]:
            # the last of equals: `STEP: 1/16 -- GLOBAL_STEP: 17` (coqui-ai/Trainer `logging/console_logger.py`)
            self.state["heading"] = [max(reversed(steps), key=lambda one: one[0])[1], key]
        for kind, place, total in counters:
            if kind == EPOCH and not indented:
                self.state["epoch"] = [place, total]
                if not steps:
                    self.state.pop("heading", None)

    def _observe(self, seen: _Observation) -> None:
        if len(seen.values) > MAX_VALUES or any(place < 0 for _, place, _ in seen.counters):
            return
        shapes = self.state.setdefault("shapes", {})
        entry = shapes.get(seen.key)
        if entry is None and not seen.usable:
            self._note_heading(seen.key, seen.counters, indented=seen.text[:1] == "-")
            return
        epoch, counters = self._split_epoch(seen)
        main, heading = self.state.get("main"), self.state.get("heading")
        if counters:
            heading = None
            if any(kind != EPOCH for kind, *_ in counters):
                self.state.pop("heading", None)
            if not main and max(counters)[0] in (EPOCH, *range(ITERATION, EPISODE + 1)):
                self.state["near"] = max(counters)[1]
        else:
            if entry and entry.get("head") != (heading and heading[1]):
                heading = None
                if "head" in entry:
                    return
            near = self.state.get("near")
            step = heading[0] if heading else main[1] if main else epoch[0] if epoch else near
            if step is None:
                return
            counters = [(-1, step, 0)]
        if entry is None:
            self._forget_oldest(shapes)
            entry = {"rank": seen.rank, "trackers": {}, **({"head": heading[1]} if heading else {})}
        shapes.pop(seen.key, None)
        shapes[seen.key] = entry  # the newest last
        if seen.rank is not None:
            if entry["rank"] is None or seen.rank < entry["rank"]:
                entry |= {"rank": seen.rank, **({} if entry.get("on") else {"trackers": {}, "first": []})}
            elif seen.rank > entry["rank"]:
                return
        if entry.get("on"):
            self._add(seen, entry, counters, epoch)
        else:
            self._learn(seen, entry, counters, epoch)

    def _split_epoch(self, seen: _Observation) -> tuple[tuple[int, int] | None, list[tuple[int, int, int]]]:
        """Return the epoch (and of how many) that is no counter by itself but goes with others, and the counters."""
        own = next(((place, total) for kind, place, total in seen.counters if kind == EPOCH), None)
        finer = [one for one in seen.counters if one[0] != EPOCH]
        if own is None and "epoch" in self.state:
            place, total = self.state["epoch"]
            return (place, total), finer
        return own, finer or list(seen.counters)

    def _learn(
        self, seen: _Observation, entry: dict[str, Any], counters: Sequence[tuple[int, int, int]],
        epoch: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        steps: dict[str, int] = {}
        for index, (kind, place, total) in enumerate(counters):
            tracker = entry["trackers"].get(str(index))
            if tracker is None and len(entry["trackers"]) >= 4:
                continue
            tracker = tracker or _begin(kind, epoch)
            entry["trackers"][str(index)] = tracker
            before = tracker.get("s")
            step = _advance(tracker, kind, place, total, epoch, _names_epoch(seen))
            tracker["n"] = (
                tracker["n"] + 1 if before is None or step > before else tracker["n"] if step == before else 1
            )
            if before is None or step != before:
                steps[str(index)] = step
        if not steps:
            if seen.bar and entry.get("first") and _counts_from_one(entry["trackers"]):
                entry["first"][-1][1] = seen.values
            return
        first = entry.setdefault("first", [])
        first.append([steps, seen.values, self.state.get("main")])
        del first[: -MIN_REPEATS * 2]
        needed = 1 if seen.known else MIN_REPEATS
        ready = [
            (counters[int(index)][0], -int(index))
            for index, tracker in entry["trackers"].items()
            if tracker["n"] >= needed and int(index) < len(counters)
        ]
        if not ready or not (seen.known or any(_differ(values, seen.values) for _, values, _ in first)):
            return
        kind, negative = max(ready)
        chosen = str(-negative)
        entry |= {"on": 1, "chosen": -negative, "kind": kind, "trackers": {chosen: entry["trackers"][chosen]}}
        entry.pop("first")
        names = seen.units()
        units = {name: names.get(name, "") for name in seen.values}
        template = seen.template()[:MAX_EXAMPLE_LENGTH]
        self.found.append(FoundPattern(seen.key, template, seen.text[:MAX_EXAMPLE_LENGTH], units))
        kept = [one for one in first if chosen in one[0]]
        while len(kept) > 1 and any(a[0][chosen] >= b[0][chosen] for a, b in itertools.pairwise(kept)):
            kept.pop(0)
        if seen.bar and _counts_from_one(entry["trackers"]):
            steps, values, _ = kept.pop()
            entry["last"] = [steps[chosen], values]
        cyclic = seen.split and kind in (BATCH, POSITION)
        for index, (steps, values, main) in enumerate(kept):
            if cyclic and main and index + 1 < len(kept) and kept[index + 1][2] == main:
                continue  # of an evaluation the last state counts
            self._give(seen, entry, steps[chosen], values, main, counters, epoch)

    def _add(
        self, seen: _Observation, entry: dict[str, Any], counters: Sequence[tuple[int, int, int]],
        epoch: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        chosen = entry["chosen"]
        if chosen >= len(counters) or counters[chosen][0] != entry["kind"]:
            chosen = next((index for index, one in enumerate(counters) if one[0] == entry["kind"]), -1)
            if chosen < 0:
                return
        (tracker,) = entry["trackers"].values()
        before, place = tracker.get("s"), tracker.get("b", 0)
        kind, at, total = counters[chosen]
        step = _advance(tracker, kind, at, total, epoch, _names_epoch(seen))
        last = seen.bar and _counts_from_one(entry["trackers"])
        if step == before:
            if last and "last" in entry:
                entry["last"][1] = seen.values
            return
        if "held" in entry and at <= place:
            self._release()
        values = seen.values
        if last:
            waiting, entry["last"] = entry.get("last"), [step, values]
            if waiting is None:
                return
            step, values = waiting
        self._give(seen, entry, step, values, self.state.get("main"), counters, epoch)

    def _give(
        self, seen: _Observation, entry: dict[str, Any], step: int, values: Mapping[str, float | None], main: Any,
        counters: Sequence[tuple[int, int, int]], epoch: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        kind, place, total = counters[min(entry["chosen"], len(counters) - 1)]
        if seen.split and kind in (BATCH, POSITION) and (main or "main" in self.state):
            if main is None:
                return
            if entry.get("held", main[1:])[0] != main[1]:
                self._release()
            entry["held"] = [main[1], dict(values), seen.key]
            if total and place == total:
                self._release()
            return
        steps: int | None = None
        (tracker,) = entry["trackers"].values()
        if kind == POSITION and total and tracker["z"] is not None:  # `3/20, loss: 0.5` below `epoch 1/4`
            kind = BATCH
        if kind == EPOCH and main and main[0] > EPOCH:
            step = main[1]
        elif not seen.split and kind >= 0 and (not main or kind >= main[0] or main[2] == seen.key):
            self._release(seen.key)
            self.state["main"] = [kind, step, seen.key]
            self.state.pop("near", None)
            steps = _count_steps(tracker, kind, total, epoch, self.length)
            steps = steps if steps is not None and step <= steps else None
        shows_all = steps == total if total else kind in (STEP, ITERATION) and epoch is None
        self._points.append(TextPoint(step, values, seen.key, steps, seen.seconds_left if shows_all else None))

    def _release(self, current: str = "") -> None:
        """Give out what waits: the last state of evaluations, one point each at the step of training, and of bars of
        other patterns than the `current` one."""
        for key, entry in self.state.get("shapes", {}).items():
            if held := entry.pop("held", None):
                self._points.append(TextPoint(held[0], held[1], held[2]))
            if key != current and (last := entry.pop("last", None)):
                self._points.append(TextPoint(last[0], last[1], key))

    def _forget_oldest(self, shapes: dict[str, Any]) -> None:
        waiting = [key for key, entry in shapes.items() if not entry.get("on")]
        if len(waiting) >= MAX_UNACCEPTED:
            del shapes[waiting[0]]
        if len(shapes) - len(waiting) >= MAX_ACCEPTED + MAX_UNACCEPTED:
            del shapes[next(iter(shapes))]

    def _bound_state(self) -> None:
        """Drop what is oldest until the state is small enough: first lines that have not repeated, then patterns."""
        shapes = self.state.get("shapes", {})
        accepted = [key for key, entry in shapes.items() if entry.get("on")]
        for key in accepted[: max(0, len(accepted) - MAX_ACCEPTED)]:
            del shapes[key]
        size = len(json.dumps(self.state))
        while size > MAX_STATE_BYTES and shapes:
            key = next((key for key, entry in shapes.items() if not entry.get("on")), next(iter(shapes)))
            size -= len(json.dumps(shapes.pop(key)))
        if size > MAX_STATE_BYTES:
            self.state.pop("block", None)
            self.state.pop("table", None)


def carry_over(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with which a learner begins the log of the next attempt: the accepted patterns, no positions."""
    shapes: dict[str, Any] = {}
    for key, entry in state.get("shapes", {}).items():
        if entry.get("on"):
            kept = {name: entry[name] for name in ("rank", "on", "chosen", "kind")}
            trackers = {
                chosen: {name: tracker[name] for name in ("n", "z", "w") if name in tracker}
                for chosen, tracker in entry["trackers"].items()
            }
            shapes[key] = {**kept, "trackers": trackers}
    return {"shapes": shapes} if shapes else {}


def _counts_from_one(trackers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return True if a bar shows the values of a position last (Lightning's moves first, then gets its values). A bar
    of tqdm that has values at position 0 gets them before it moves: there the first state counts."""
    return any(tracker.get("f") for tracker in trackers.values())


def _differ(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> bool:
    """Return True if a value has changed; a text that is printed again and again has constants."""
    return any(before.get(name) != value for name, value in after.items())


def _begin(kind: int, epoch: tuple[int, int] | None) -> dict[str, Any]:
    """Return a counter's state: `n` lines with growing steps, the last step `s`, position `b` and epoch `e`, the steps
    `o` before this cycle, the distance `d` of two lines, the first position `f`, whether positions are within the epoch
    (`w`), and the number of the first epoch `z`, 0 or 1; None: positions go with no epoch."""
    base = None if kind in (EPOCH, -1) or epoch is None else (0 if epoch[0] == 0 else 1)
    return {"n": 0, "z": base}


def _names_epoch(seen: _Observation) -> bool:
    return any(kind == EPOCH for kind, *_ in seen.counters)


def _advance(
    tracker: dict[str, Any], kind: int, place: int, total: int, epoch: tuple[int, int] | None, epoch_named: bool
) -> int:
    """Return the step of a counter at `place` of `total` (0: not known) in the epoch, and keep it. `epoch_named`: the
    line itself names the epoch, so that a lower place in it is no further cycle, but another process that prints."""
    last, step = tracker.get("b"), place
    if kind in (EPOCH, -1):
        tracker |= {"s": place, "b": place}
        return place
    with_epoch = tracker["z"] is not None and epoch is not None
    number = epoch[0] if with_epoch and epoch else 0
    changed = with_epoch and "e" in tracker and number != tracker["e"]
    fell = last is not None and place < last
    if changed and not (total and kind in (BATCH, POSITION)):
        assert last is not None
        tracker["w"] = 1 if place <= last else tracker.get("w", 0)
    within = kind in (BATCH, POSITION) if "w" not in tracker else bool(tracker["w"])
    if with_epoch and within and total:
        if fell and not changed and not epoch_named:
            tracker["o"] = tracker.get("o", 0) + total
        step = tracker.get("o", 0) + (number - tracker["z"]) * total + place
    elif (with_epoch and within and changed) or (
        last is not None and place < last and not with_epoch and _may_begin_anew(tracker, kind, last, total)
    ):
        grown = total or tracker.get("d", 1) * (tracker.get("f", 0) == 0)
        tracker["o"] = tracker.get("o", 0) + total if total else tracker["s"] + grown
        step = tracker["o"] + place
    elif within or not with_epoch:
        step = tracker.get("o", 0) + place
    if last is not None and not changed and place > last:
        tracker["d"] = place - last
    tracker.setdefault("f", place)
    tracker |= {"s": step, "b": place, **({"e": number} if with_epoch else {})}
    return step


def _may_begin_anew(tracker: Mapping[str, Any], kind: int, last: int, total: int) -> bool:
    """Return True if a lower place after `last` begins another cycle; else training goes on from an earlier step, as
    after a crash in the middle of `iteration 7220/ 159576`."""
    return kind in (BATCH, POSITION) or (total > 0 and last + tracker.get("d", 1) >= total)


def _count_steps(
    tracker: Mapping[str, Any], kind: int, total: int, epoch: tuple[int, int] | None, length: TrainingLength
) -> int | None:
    """Return of how many steps the training is, if the lines, or they and what is known from elsewhere, say that."""
    if not total:
        return {STEP: length.printed_steps, ITERATION: length.steps, EPOCH: length.epochs}.get(kind) or None
    within = kind in (BATCH, POSITION) if "w" not in tracker else bool(tracker["w"])
    if tracker.get("z") is None or not within or epoch is None:
        if kind not in (BATCH, POSITION) or length.steps == total:
            return total
        if tracker.get("o"):  # it has begun anew: these are the batches of an epoch
            return total * length.epochs or None
        return total if length.epochs <= 1 else None  # of the training or of its first epoch
    last_epoch = epoch[1]
    if last_epoch and tracker["z"] == 0 and length.epochs == last_epoch + 1:  # `0/9` counts to 9
        last_epoch += 1
    return total * (last_epoch or length.epochs) or None
