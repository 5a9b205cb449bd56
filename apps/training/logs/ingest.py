"""Reads what ranks print into metrics, events and checkpoints, each exactly once.

    lines of the log ─┬──────────▶ fermi.metrics.json_lines ─┐
                      └─▶ fermi.metrics.text_patterns ───────┤
                                                             ├─▶ points ─▶ sources (what a better one reports) ─▶ rows
    frames between its bytes ────▶ fermi.metrics.records ────┘

The offset up to which a log was read (`LogCursor.offset`) moves by compare-and-set in the transaction that stores what
was found: a crash repeats or loses nothing, and of two processes that read the same bytes one stores them while the
other finds the offset moved, drops what it has and reads again. Frames are read where they are, also in a line that is
not complete for hours: the offset moves behind them, and the state keeps the beginning of that line. Of several
watchers only the one that owns the task now stores at all (`logs.sharding`).

So that a month on many GPUs stays a small table: of each kind of line (the same metric names) a rank's first points are
all kept, 10,000 of rank 0 and 500 of each other; from there on every second, later every third, …, and always the
newest, which goes when the next one comes. That is 100,000 rows for 10 million lines, and it depends on nothing but the
lines' order; summaries of curves (`core.summaries`) count all points. With many kinds of lines, or many names in each,
fewer of each are kept (`_LogTail.get_dense_points`): a script that invents names cannot fill the database. Events:
10,000 per rank and attempt; checkpoints that a runner found: the newest 10,000 of the task; announced checkpoints all.
"""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from django.db import transaction
from django.db.models import Q

from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.training.core import (
    checkpoint_nodes,
    checkpoints,
    findings,
    metric_blocks,
    summaries,
    transitions,
    wakeups,
)
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.core.facts import NodePlace, ReportedFacts, store_facts
from apps.training.core.parameters import store_parameters
from apps.training.core.tracker_runs import MAX_RUNS, ReportedRun, store_runs
from apps.training.logs import text_metrics
from apps.training.models import Checkpoint, CheckpointSource, Event, LogCursor, MetricPoint, Node, Task, TaskMedia
from apps.training.states import TaskKind
from fermi.diagnosis import Finding, Level, Where, loss_anomalies, prompts
from fermi.jobs.causes import RESUME_NOT_ON_NODE
from fermi.jobs.spec import RankProgress
from fermi.metrics import json_lines, points
from fermi.metrics.bars import find_bars
from fermi.metrics.facts import FactParts, FoundFacts
from fermi.metrics.known_patterns import DeclaredPattern
from fermi.metrics.parameters import MAX_PARAMETERS, ParameterValue
from fermi.metrics.points import Point
from fermi.metrics.records import FoundCheckpoint, Media, Record, parse_record
from fermi.metrics.sources import HiddenSeries, SourceMerger, find_loss
from fermi.metrics.text_patterns import FoundPattern, Learner, TextPoint, carry_over
from fermi.metrics.trainer_steps import TrainerPosition
from fermi.metrics.training_end import TrainingEnd
from fermi.metrics.training_length import UNKNOWN, TrainingLength, find_in_arguments, find_in_parameters
from fermi.runner.record_frames import FRAME_START, find_partial_frame, iterate_frames, strip_frames

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 << 10
"""Most bytes of a rank's log that one pass reads."""

MAX_UNSTORED_BYTES = 1 << 20
"""Bytes without metrics or events that may be read before the offset is stored: reading them again costs nothing."""

DENSE_POINTS_RANK_0, DENSE_POINTS_OTHER_RANKS = 10_000, 500
MAX_LINE_KINDS = 1024  # more than that share their counts
DENSE_POINTS_ALL_KINDS, DENSE_VALUES_ALL_KINDS = 20, 400
"""Of all kinds of a rank's lines together, so many times as many points and values as of one."""
MIN_DENSE_POINTS = 20
MAX_SOURCES, MAX_PROMPTS = 32, 1000
"""Of a rank and attempt: further trackers, and questions, are left out."""
MAX_EVENTS = MAX_FOUND_CHECKPOINTS = 10_000
DENSE_MEDIA, MAX_MEDIA = 100, 2000
MAX_HOLD_SECONDS = 15.0
"""Longest time, in seconds, that a Trainer's first line waits for a progress report of the probe; pods report every ten
seconds."""
BAR_SECONDS = 2.0
"""Seconds between two positions of a bar without values that are stored."""
SUMMARY_SECONDS = 10.0
"""Seconds between two updates of the rows that say what a task's curves come to."""
MAX_UNIX_SECONDS = 250_000_000_000.0
"""The end of a training that is later is not stored: a date has four digits for the year."""
MAX_PATH_LENGTH, MAX_LAYOUT_LENGTH = 500, 20

OWN_SOURCES = ("runner", points.FILE, "facts")

KNOWN_EVENTS: dict[str, tuple[str, ...]] = {
    "started": (),
    "resumed": ("step", "path"),
    "checkpoint": ("step", "path"),
    "checkpoint_skipped": ("path", "why"),
    "checkpoint_failed": ("step", "why"),
    "stopped": ("step",),
    "finished": ("step",),
    "drilled": ("path",),  # printed by the rank's runner
}
"""Events with a text of their own, `SCRIPT_<EVENT>`, and the parameters that they need; an event without them is a
`SCRIPT_EVENT`."""


def drain_logs(task_id: str, attempt: int, trainer: TrainerPosition | None = None) -> None:
    """Read an ended attempt to its end; a last line may lack its line feed. `trainer`: the position of the script's
    Trainer at the end."""
    reading = LogReader(Task.objects.select_related("cluster").get(pk=task_id), attempt)
    reading.trainer = trainer
    while reading.read(to_the_end=True).more:
        pass
    reading.store_summaries()


def store_step_count(task_id: str, attempt: int, step: int, total: int = 0, ends: float | None = None) -> None:
    """Store how far an attempt is according to its optimizers, its script's Trainer or its bar, of how many steps if
    that is known (else 0), and when it will end, in unix seconds, unless its rank 0 has printed a step."""
    condition = Q(progress={}) | Q(progress__counted=True)
    _update_progress(task_id, attempt, {"step": step, "counted": True}, total, ends, condition)


def _update_progress(
    task_id: str, attempt: int, found: dict[str, Any], total: int, ends: float | None, condition: Q
) -> None:
    """Update the progress of a task's attempt where the condition holds."""
    rows = Task.objects.filter(condition, pk=task_id, attempt=attempt)
    with transaction.atomic():
        progress = rows.select_for_update().values_list("progress", flat=True).first()
        if progress is None:
            return
        changed = _set_length({**progress, **found}, attempt, total, ends)
        if changed != progress:
            rows.update(progress=changed)
            wakeups.publish_change(task_id, "metric")


def _set_length(progress: dict[str, Any], attempt: int, total: int, ends: float | None) -> dict[str, Any]:
    """Write into a progress of how many steps the training is (0: not known), and when it ends. Return the progress."""
    _set_total(progress, total)
    progress.pop("ends", None)
    if ends is not None and ends < MAX_UNIX_SECONDS:
        progress["ends"] = [attempt, round(ends)]
    return progress


def _set_total(progress: dict[str, Any], total: int) -> None:
    """Write into a progress of how many steps the training is; 0: not known, so an earlier total counts until it is
    passed."""
    if total:
        progress["total"] = total
    elif progress.get("total", math.inf) < progress["step"]:
        del progress["total"]


@dataclass(slots=True)
class IngestResult:
    """Result of one read. `grown`: ranks that printed anything; `more`: there is more to read at once."""

    grown: set[int] = field(default_factory=set)
    more: bool = False


class _ConcurrentReadError(Exception):
    """Raised if another process stored what was read here."""


class LogReader:
    """Reader of the logs of one attempt. Keeps its position from pass to pass; after an error it reloads it from the
    database.

    `confirm` is called in each transaction that stores what was read, and raises if another process owns the task now.
    """

    def __init__(self, task: Task, attempt: int, confirm: Callable[[str], None] = lambda _: None) -> None:
        self._confirm = confirm
        self._task_id, self._attempt = task.pk, attempt
        self._handle, self._backend = build_handle(task, attempt), get_backend(task.cluster)
        self._cluster = task.cluster
        self._rehearses = task.kind == TaskKind.DRILL  # a drill ends as soon as it has shown what it has to show
        self._summarizes = task.kind == TaskKind.TRAINING
        self._tails: dict[int, _LogTail] = {}
        self._project_id = task.project_id
        self.trainer: TrainerPosition | None = None
        self._held_since = math.inf  # when the first line came that waits for a report
        self._end = TrainingEnd()
        self._length = UNKNOWN  # as the arguments say
        self._bar_stored = 0.0
        self._states_before: list[summaries.State] | None = None  # of the attempts before
        self._has_new_values = True
        self._summaries_stored = -math.inf

    @property
    def waits(self) -> bool:
        """Return True if a line waits until a progress report says where the script's Trainer is."""
        return any(tail.held for tail in self._tails.values())

    @property
    def has_printed_step(self) -> bool:
        """Return True if rank 0 has printed a step, as far as was read here."""
        return 0 in self._tails and not self._tails[0].state.get("progress", {"counted": True}).get("counted")

    def hear(self, pulses: Mapping[int, RankProgress]) -> None:
        """Take the ranks' progress reports: what their probes count is more exact than a point without a step."""
        counts = [pulse.step for pulse in pulses.values() if pulse.step is not None]
        self.trainer = TrainerPosition.from_reports(pulses[rank].trainer for rank in sorted(pulses)) or self.trainer
        if counts and not any(pulse.trainer for pulse in pulses.values()):
            self._held_since = -math.inf  # lines of another program: no report will come
        if not counts:
            return
        step, total, moment = max(counts), self._get_length().steps, time.time()
        self._end.bars.compare_steps(step)
        if self.trainer:
            step, total = self.trainer.step, self.trainer.total
        elif (bar := self._end.bars.bar) and not total:
            step, total = bar.position, bar.total
        total = total if total >= step else 0
        if self.has_printed_step:
            if self.trainer:
                self._store_position(step, total, moment)
            return
        if 0 in self._tails:
            self._tails[0].state |= {"steps": step, "total": total}
        store_step_count(self._task_id, self._attempt, step, total, self._end.estimate(moment, step, total))

    def _store_position(self, step: int, total: int, moment: float) -> None:
        """Store that a Trainer or a bar is farther than the newest line for the platform, of as many steps."""
        ends = self._end.estimate(moment, step, total)
        of_these = Q(progress__total=total) | ~Q(progress__has_key="total")
        ahead = Q(progress__step__lte=step) & ~Q(progress__has_key="counted")
        _update_progress(self._task_id, self._attempt, {"step": step}, total, ends, of_these & ahead)

    def _get_length(self) -> TrainingLength:
        """Return of how many steps and epochs the training is, as arguments and parameters say."""
        return self._tails[0].length if 0 in self._tails else self._length

    def read(self, ranks: Iterable[int] | None = None, *, to_the_end: bool = False) -> IngestResult:
        """Read the new bytes of `ranks` (by default all), at most CHUNK_BYTES of each, and store what they contain."""
        try:
            return self._pass(ranks, to_the_end)
        except _ConcurrentReadError:
            self._tails = {}
            return IngestResult(more=True)
        except BaseException:
            self._tails = {}
            raise

    def _pass(self, ranks: Iterable[int] | None, to_the_end: bool) -> IngestResult:
        self._tails = self._tails or self._load()
        ranks_with_points = [rank for rank, tail in self._tails.items() if tail.state.get("kinds")]
        lead = min(ranks_with_points, default=0)
        news, moment = IngestResult(), time.time()
        found = _ParsedRows(self._task_id, self._attempt, self._cluster, self.trainer, lead, self._end.get_position)
        found.summarized_rank = min(ranks_with_points, default=math.inf)
        for rank in self._tails if ranks is None else ranks:
            tail = self._tails[rank]
            chunk = self._backend.logs(self._handle, rank, tail.position, CHUNK_BYTES)
            last = to_the_end and chunk.end
            if tail.position + len(chunk.data) > tail.seen:
                tail.seen = tail.position + len(chunk.data)
                news.grown.add(rank)
            elif not (last or tail.held):
                continue
            text, framed = tail.split_lines(chunk.data, last=last)
            records = [record for record in map(parse_record, framed) if record]
            if records and not self.trainer:
                self.trainer = found.trainer = TrainerPosition.from_records(records)
            due = text if to_the_end else self._without_held(tail, text)
            if due is None:
                continue
            if rank == lead:
                self._end.bars.add(find_bars(due), moment, self._get_total(tail))
            rows = found.add(tail, due, records, last=last)
            news.more |= not (chunk.end or tail.held)
            if rows or tail.position - tail.stored > MAX_UNSTORED_BYTES or (last and tail.position > tail.stored):
                found.tails.append(tail)
        if to_the_end:  # of an ended attempt, which asks nothing any more
            found.prompts = []
        if found.seconds_left is not None:
            self._end.add_line(found.seconds_left, moment)
        if found.progress and not (news.more or to_the_end):
            step, total = found.progress["step"], found.progress.get("total", 0)
            _set_length(found.progress, self._attempt, total, self._end.estimate(moment, step, total))
        if found.tails:
            self._store(found)
        self._has_new_values |= found.has_values
        if self._has_new_values and time.monotonic() - self._summaries_stored >= SUMMARY_SECONDS and not to_the_end:
            self.store_summaries()
        if not found.progress and self._end.bars.time == moment and moment - self._bar_stored >= BAR_SECONDS:
            self._store_bar(moment)
        return news

    def store_summaries(self) -> None:
        """Store what the curves come to, as far as was read here."""
        ranks = [rank for rank, tail in self._tails.items() if tail.state.get("kinds")]
        if ranks and self._summarizes:
            with transaction.atomic():
                transitions.lock_row_order(self._task_id)
                self._confirm(self._task_id)
                if self._states_before is None:
                    self._states_before = summaries.load_states(self._task_id, self._attempt - 1)
                lead = self._tails[min(ranks)]
                state = summaries.load_state(self._task_id, self._attempt, lead.rank)
                if state is None:  # added here, and not stored yet
                    state = lead.state.get(summaries.STATE_KEY, {})
                summaries.store_summaries(self._task_id, [*self._states_before, state])
        self._has_new_values, self._summaries_stored = False, time.monotonic()

    def _store_bar(self, moment: float) -> None:
        """Store the position of a bar, in whose lines there are no values."""
        bar = self._end.bars.bar
        if not bar:
            return
        self._bar_stored = moment
        if self.has_printed_step:
            self._store_position(bar.position, bar.total, moment)
        elif not self.trainer:
            ends = self._end.estimate(moment, bar.position, bar.total)
            store_step_count(self._task_id, self._attempt, bar.position, bar.total, ends)

    def _get_total(self, tail: _LogTail) -> int | None:
        """Return of how many steps the training is, as far as that is known without a bar."""
        known = self.trainer.total if self.trainer else tail.length.steps or tail.state.get("progress", {}).get("total")
        return known or None

    def _without_held(self, tail: _LogTail, text: bytes) -> bytes | None:
        """Return the whole lines before the first line of a Trainer whose position is not known yet; the rest is read
        once a progress report has come, or after MAX_HOLD_SECONDS. None: nothing is read before, frames neither."""
        at, moment = -1, time.monotonic()
        if not self.trainer and moment - self._held_since < MAX_HOLD_SECONDS:
            at = json_lines.find_epoch_line(text)
        tail.held = at >= 0
        if not tail.held:
            return text
        self._held_since = min(self._held_since, moment)
        if tail.undo is not None:
            tail.undo()
            return None
        tail.position -= len(text) - at
        return text[:at]

    def _load(self) -> dict[int, _LogTail]:
        cursors = LogCursor.objects.filter(task_id=self._task_id, attempt=self._attempt)
        declared = text_metrics.load_declared_patterns(self._project_id)
        self._length = self._load_length()
        tails = {
            cursor.rank: _LogTail(cursor.rank, cursor.offset, cursor.state, declared, self._length)
            for cursor in cursors
        }
        new = [rank for rank in range(self._handle.world_size) if rank not in tails]
        before = self._load_states_before() if new else {}
        absent = {rank: _build_first_state(rank, before.get(rank, {})) for rank in new}
        LogCursor.objects.bulk_create(
            [
                LogCursor(task_id=self._task_id, attempt=self._attempt, rank=rank, state=state)
                for rank, state in absent.items()
            ],
            ignore_conflicts=True,
        )
        self._has_new_values = True
        self._add_summary(tails)
        return tails | {rank: _LogTail(rank, 0, state, declared, self._length) for rank, state in absent.items()}

    def _add_summary(self, tails: Mapping[int, _LogTail]) -> None:
        """Add what the points come to that were stored before there were summaries."""
        lead = min((rank for rank, tail in tails.items() if tail.state.get("kinds")), default=None)
        if lead is not None and summaries.STATE_KEY not in tails[lead].state:
            tails[lead].state[summaries.STATE_KEY] = summaries.read_points(self._task_id, self._attempt, lead)

    def _load_length(self) -> TrainingLength:
        """Return of how many steps and epochs the training is, as the arguments of its command say."""
        entry = Task.objects.filter(pk=self._task_id).values_list("spec__entrypoint", flat=True).first() or {}
        return find_in_arguments([*(entry.get("command") or ()), *(entry.get("args") or ())])

    def _load_states_before(self) -> dict[int, dict[str, Any]]:
        """Return the states of the cursors of the attempt before, by rank."""
        if self._attempt < 2:
            return {}
        cursors = LogCursor.objects.filter(task_id=self._task_id, attempt=self._attempt - 1)
        return dict(cursors.values_list("rank", "state"))

    def _store(self, parsed: _ParsedRows) -> None:
        """Store everything found in one transaction, or nothing. Raises _ConcurrentReadError."""
        with transaction.atomic():
            transitions.lock_row_order(self._task_id)
            self._confirm(self._task_id)
            if parsed.hidden:
                self._remove_hidden(parsed)
            if parsed.replaced:
                MetricPoint.objects.filter(pk__in=parsed.replaced).delete()
            text_metrics.store_patterns(self._task_id, parsed.patterns)
            MetricPoint.objects.bulk_create([*parsed.points, *(point for _, point in parsed.newest.values())])
            for slot, point in parsed.newest.values():
                slot[1] = point.pk
            joined = parsed.join_found() if parsed.found else []
            Event.objects.bulk_create(parsed.events)
            Checkpoint.objects.bulk_create(
                [*parsed.checkpoints.values(), *joined],
                update_conflicts=True,
                unique_fields=["task", "path"],
                update_fields=[
                    "attempt", "step", "size_bytes", "val_loss", "at", "source", "layout", "nodes", "is_complete"
                ],
            )  # fmt: skip
            if parsed.found:
                rows = Checkpoint.objects.filter(task_id=self._task_id, source=CheckpointSource.RUNNER)
                over = list(rows.order_by("-at", "-pk").values_list("pk", flat=True)[MAX_FOUND_CHECKPOINTS:])
                Checkpoint.objects.filter(pk__in=over).delete()
            for (rank, source), found in parsed.parameters.items():
                store_parameters(self._task_id, found, source, replaces=rank == 0)
            if parsed.media:
                self._store_media(parsed)
            if parsed.runs:
                store_runs(self._task_id, self._attempt, parsed.runs)
            for rank, about in parsed.facts.items():
                store_facts(self._task_id, self._attempt, parsed.find_node(rank), about)
            for tail in parsed.tails:
                cursor = LogCursor.objects.filter(task_id=self._task_id, attempt=self._attempt, rank=tail.rank)
                if not cursor.filter(offset=tail.stored).update(offset=tail.position, state=tail.state):
                    raise _ConcurrentReadError
            if parsed.progress:
                Task.objects.filter(pk=self._task_id, attempt=self._attempt).update(progress=parsed.progress)
            self._note([*parsed.losses, *parsed.prompts, *parsed.notices])
            if self._rehearses:
                wakeups.enqueue_task(self._task_id)
            if parsed.points or parsed.newest:
                wakeups.publish_change(self._task_id, "metric")
            if parsed.events or parsed.checkpoints or parsed.found:
                wakeups.publish_change(self._task_id, "event")
        for tail in parsed.tails:
            tail.stored = tail.position

    def _store_media(self, parsed: _ParsedRows) -> None:
        """Store the rows of files. Of a task the newest MAX_MEDIA are kept."""
        rows = TaskMedia.objects.filter(task_id=self._task_id)
        for kind, name, step in parsed.replaced_media:
            rows.filter(kind=kind, name=name, step=step, attempt=self._attempt).delete()
        added = list(parsed.media.values())[-MAX_MEDIA:]
        if (over := rows.count() + len(added) - MAX_MEDIA) > 0:
            rows.filter(pk__in=list(rows.order_by("pk").values_list("pk", flat=True)[:over])).delete()
        TaskMedia.objects.bulk_create(
            added,
            update_conflicts=True,
            unique_fields=["task", "kind", "name", "step"],
            update_fields=["attempt", "rank", "path", "source", "at"],
        )

    def _remove_hidden(self, parsed: _ParsedRows) -> None:
        """Remove the values that a better source reports as well, from stored rows and from those to be stored."""
        metric_blocks.discard_blocks(self._task_id)
        names: dict[tuple[int, str], set[str]] = {}
        for rank, series in parsed.hidden:
            parsed.remove_series(rank, series)
            names.setdefault((rank, series.source), set()).add(series.name)
        for (rank, source), hidden in names.items():  # each row is written once, however many of its names go
            rows = MetricPoint.objects.filter(
                task_id=self._task_id, attempt=self._attempt, rank=rank, source=source, values__has_any_keys=[*hidden]
            )
            changed, empty = list[MetricPoint](), list[int]()
            for row in rows.iterator():
                row.values = {name: value for name, value in row.values.items() if name not in hidden}
                changed.append(row) if row.values else empty.append(row.pk)
            MetricPoint.objects.bulk_update(changed, ["values"], batch_size=500)
            for at in range(0, len(empty), 500):
                MetricPoint.objects.filter(pk__in=empty[at : at + 500]).delete()

    def _note(self, found: Iterable[Finding | loss_anomalies.Resolved]) -> None:
        """Record findings of losses and questions; a certain one may end the attempt, so it wakes the reconciler."""
        for one in found:
            if isinstance(one, loss_anomalies.Resolved):
                findings.resolve_findings(self._task_id, self._attempt, one.code, one.key)
                continue
            findings.record_findings(self._task_id, self._attempt, [one])
            if one.level is Level.FAIL:
                wakeups.enqueue_task(self._task_id)


def _build_first_state(rank: int, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the initial state of a rank's cursor, from its state in the attempt before: the loss with which training
    began, and the patterns of its lines."""
    known = {} if rank else loss_anomalies.extract_starts(before.get("losses", {}))
    text = carry_over(before.get("text", {}))
    return ({"losses": known} if known else {}) | ({"text": text} if text else {})


def _to_point(found: TextPoint) -> Point:
    """Return the point of a line for people. Its counter is progress where the line says of how many."""
    return Point(
        found.step, found.values, None, points.TEXT, is_plain_text=found.total is None,
        pattern=found.pattern, total=found.total, seconds_left=found.seconds_left,
    )  # fmt: skip


class _LogTail:
    """Position in a rank's log. `stored` is the offset in the database; nothing between it and `position` has to be
    stored; `seen` is how long the log was; `held`: the next line waits (`LogReader.waits`).

    `state`: `skipping` inside an over-long line; `counted` points without a step; `kinds` of lines: how many, and the
    key of the point that goes when the next one comes; `events`; `progress`, the newest step and loss, with `counted`
    where no step was printed; `steps` and `total`, what the ranks' probes reported last; `logged`, step and epoch of
    the Trainer's newest line; `losses`, the state of `fermi.diagnosis.loss_anomalies`; `sources`, that of
    `fermi.metrics.sources`; `text`, that of `fermi.metrics.text_patterns`; `media`, by kind and name: how many, and the
    step of the row that goes when the next one comes; `asked`, the last question that `input()` was called with;
    `begun`, the beginning of a line that frames follow, as base64; `length`, of how many steps, epochs and timesteps
    the training is according to its parameters; `summary`, of the leading rank: what its curves come to
    (`core.summaries`); `facts`, the parts of lists that are not complete.
    """

    def __init__(
        self, rank: int, offset: int, state: dict[str, Any], declared: Sequence[DeclaredPattern] = (),
        length: TrainingLength = UNKNOWN,
    ) -> None:  # fmt: skip
        self.rank, self._declared = rank, declared
        self.length = length.merge(TrainingLength(*state.get("length", ())))
        self.stored = self.position = self.seen = offset
        self.held = False
        self.state = state
        self.undo: Callable[[], None] | None = None  # of the last split, where that is not a matter of bytes
        self._merger: SourceMerger | None = None
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        """What is known of the lines that the rank prints for people."""
        if self._learner is None:
            self._learner = text_metrics.build_learner(self.state.setdefault("text", {}), self._declared)
            self._learner.length = self.length
        return self._learner

    def add_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        """Update the training's length by what parameters say of it."""
        found = find_in_parameters(parameters)
        if found != UNKNOWN:
            known = TrainingLength(*self.state.get("length", ())).merge(found)
            self.state["length"] = list(astuple(known))
            self.length = self.learner.length = self.length.merge(found)

    @property
    def merger(self) -> SourceMerger:
        """What is known of the sources of the rank's points."""
        if self._merger is None:
            self._merger = SourceMerger(self.state.setdefault("sources", {}))
        return self._merger

    def accepts_source(self, source: str) -> bool:
        """Return whether records of a source are read: those of the first MAX_SOURCES, and the platform's own."""
        heard: list[str] = self.state.setdefault("heard", [])
        if source in heard or source in OWN_SOURCES:
            return True
        if len(heard) >= MAX_SOURCES:
            return False
        heard.append(source)
        return True

    def get_dense_points(self, values: int) -> int:
        """Return how many of the first points of a kind of line with so many values are all kept."""
        most, kinds = self.max_dense_points, len(self.state.get("kinds", ())) or 1
        shares = most * DENSE_POINTS_ALL_KINDS // kinds, most * DENSE_VALUES_ALL_KINDS // (kinds * max(1, values))
        return max(min(most, *shares), min(most, MIN_DENSE_POINTS))

    @property
    def max_dense_points(self) -> int:
        """Return how many of the first points of a kind of line are kept of a rank with few kinds."""
        return DENSE_POINTS_OTHER_RANKS if self.rank else DENSE_POINTS_RANK_0

    def thins_early(self, dense: int) -> bool:
        """Return, once per rank, whether fewer points of a kind are kept because there are so many kinds."""
        if dense >= self.max_dense_points or self.state.get("thinned"):
            return False
        self.state["thinned"] = True
        return True

    def split_lines(self, data: bytes, *, last: bool) -> tuple[bytes, list[bytes]]:
        """Return the whole lines of `data`, which begins at `position`, each ended by a line feed, and the records
        between them, and move behind both. With `last` a partial line counts as whole."""
        self.undo = None
        if FRAME_START in data or "begun" in self.state:
            return self._split_framed(data, last=last)
        text, moved = self._split_text(data.replace(b"\r", b"\n"), last=last)
        self.position += min(moved, len(data))
        return text, []

    def _split_text(self, text: bytes, *, last: bool) -> tuple[bytes, int]:
        """Return the whole lines of the text, and how much of it has been read."""
        begin, end = 0, text.rfind(b"\n") + 1
        if self.state.get("skipping"):
            begin = text.find(b"\n") + 1
            if not begin:
                return b"", len(text)
            del self.state["skipping"]
        if last and end < len(text):
            text, end = text + b"\n", len(text) + 1
        elif len(text) - end > json_lines.MAX_LINE_BYTES:
            self.state["skipping"] = True
            return text[begin:end], len(text)
        return text[begin:end], end

    def _split_framed(self, data: bytes, *, last: bool) -> tuple[bytes, list[bytes]]:
        """Split data with frames in it, or after the beginning of a line that is in the state: `begun`, as base64. The
        position moves behind the last whole frame at least."""
        before, position = {name: self.state.get(name) for name in ("begun", "skipping")}, self.position

        def undo() -> None:
            self.position = position
            for name, value in before.items():
                self.state.pop(name, None)
                if value is not None:
                    self.state[name] = value

        self.undo = undo
        frames = list(iterate_frames(data))
        framed = frames[-1][1] if frames else 0
        rest = data[framed:] if last else data[framed : framed + find_partial_frame(data[framed:])]
        begun = base64.b64decode(self.state.pop("begun", "")) + strip_frames(data[:framed])
        text, moved = self._split_text((begun + rest).replace(b"\r", b"\n"), last=last)
        self.position += framed + min(max(0, moved - len(begun)), len(rest))
        if left := begun[moved:]:
            self.state["begun"] = base64.b64encode(left).decode()
        return text, [record for _, _, record in frames]


class _ParsedRows:
    """Rows to store after one pass over an attempt."""

    def __init__(
        self, task_id: str, attempt: int, cluster: Cluster, trainer: TrainerPosition | None, lead: int,
        get_position: Callable[[int], int],
    ) -> None:  # fmt: skip
        """`lead`: the lowest rank that reports points; lines for people may come from another one than rank 0.
        `get_position`: returns the position of the bar that counts to so many steps."""
        self._cluster, self._task_id, self.trainer, self._lead = cluster, task_id, trainer, lead
        self._of = {"task_id": task_id, "attempt": attempt}
        self._now, self._get_position = now(), get_position
        self.seconds_left: float | None = None
        self.points: list[MetricPoint] = []
        self.newest: dict[tuple[int, str], tuple[list[int], MetricPoint]] = {}  # by rank and kind of line
        self.replaced: list[int] = []
        self.events: list[Event] = []
        self.checkpoints: dict[str, Checkpoint] = {}
        self.found: list[Checkpoint] = []  # reports of nodes, in their order
        self.untold: set[str] = set()  # paths of found checkpoints without an event
        self.progress: dict[str, Any] = {}
        self.tails: list[_LogTail] = []
        self.hidden: list[tuple[int, HiddenSeries]] = []
        self.parameters: dict[tuple[int, str], dict[str, ParameterValue]] = {}  # by rank and source
        self.media: dict[tuple[str, str, int], TaskMedia] = {}
        self.facts: dict[int, ReportedFacts] = {}  # by the rank that reported them
        self.runs: list[ReportedRun] = []
        self.replaced_media: list[tuple[str, str, int]] = []
        self.patterns: list[FoundPattern] = []
        self.losses: list[Finding | loss_anomalies.Resolved] = []
        self.prompts: list[Finding | loss_anomalies.Resolved] = []
        self.notices: list[Finding] = []
        self.summarized_rank = math.inf  # the lowest one with points
        self.has_values = False
        self._places: list[NodePlace] | None = None  # by rank

    def add(self, tail: _LogTail, text: bytes, records: Iterable[Record], *, last: bool) -> bool:
        """Add the records, and what the lines hold; return True if there is something to store. `last`: the log has
        ended."""
        rows = False
        for record in records:
            rows = self._add_record(tail, record) or rows
        for line in json_lines.find_candidates(text):
            match json_lines.parse_line(line):
                case Point() as point:
                    self._add_point(tail, point)
                    rows = True
                case json_lines.PrintedEvent() as said:
                    self._add_event(tail, said)
                    rows = True
        learned = tail.learner.feed(text)
        self.patterns += tail.learner.found
        for one in [*learned, *(tail.learner.flush() if last else ())]:
            self._add_point(tail, _to_point(one))
            rows = True
        return rows

    def _add_record(self, tail: _LogTail, record: Record) -> bool:
        if not tail.accepts_source(record.source):
            return False
        if point := record.to_point():
            self._add_point(tail, point)
        if record.checkpoint:
            self._add_found_checkpoint(tail, record.checkpoint, self._at(record.time))
        if record.parameters:
            known = self.parameters.setdefault((tail.rank, record.source), {})
            known |= {n: v for n, v in record.parameters.items() if n in known or len(known) < MAX_PARAMETERS}
            tail.add_parameters(record.parameters)
        if record.media:
            self._add_media(tail, record, record.media)
        if record.prompt:
            self._add_prompt(tail, record.prompt, self._at(record.time))
        if record.notice:
            self._add_notice(tail, record.notice, self._at(record.time))
        if record.facts:
            self._add_facts(tail, record.facts)
        if record.run and len(self.runs) < MAX_RUNS:
            rank = tail.rank if record.rank is None else record.rank
            self.runs.append(ReportedRun(record.source, rank, self._at(record.time), record.run))
        found = (point, record.checkpoint, record.parameters, record.media, record.prompt, record.notice, record.facts)
        return any(found) or record.run is not None

    def _add_facts(self, tail: _LogTail, found: FoundFacts) -> None:
        known = self.facts.setdefault(tail.rank, ReportedFacts())
        known.values |= found.values
        if found.part and (whole := FactParts(tail.state.setdefault("facts", {})).add(found.part)) is not None:
            known.lists[found.part.kind] = whole

    def _add_media(self, tail: _LogTail, record: Record, found: Media) -> None:
        """Keep a file's row. Of the same name the first ones are kept, later every second, third, …, and always the
        newest, which goes when the next one comes."""
        series = tail.state.setdefault("media", {})
        key = str(crc32(f"{found.kind}:{found.name}".encode()) % MAX_LINE_KINDS)
        slot = series.setdefault(key, [0, None])
        slot[0] += 1
        step = record.step if record.step is not None else slot[0]
        if slot[1] is not None and slot[1] != step and not self.media.pop((found.kind, found.name, slot[1]), None):
            self.replaced_media.append((found.kind, found.name, slot[1]))
        slot[1] = step if slot[0] % (slot[0] // DENSE_MEDIA + 1) else None
        self.media[found.kind, found.name, step] = TaskMedia(
            **self._of, rank=tail.rank, kind=found.kind, name=found.name, step=step, path=found.path,
            source=record.source, at=self._at(record.time),
        )  # fmt: skip

    def _add_prompt(self, tail: _LogTail, prompt: Mapping[str, Any], at: datetime) -> None:
        """Add what follows from a question of the script, or from its end. Of the same ones the last counts."""
        count = tail.state["questions"] = tail.state.get("questions", 0) + 1
        if count > MAX_PROMPTS:
            return
        if prompt.get("kind") == prompts.ANSWERED:
            self._note_prompts(loss_anomalies.Resolved(code, str(tail.rank)) for code in prompts.CODES)
        elif one := prompts.build_prompt_finding(prompt, tail.rank, at.timestamp(), tail.state.get("asked", "")):
            self._note_prompts([one])
            if prompt["kind"] == "input":
                tail.state["asked"] = prompt["text"]

    def _note_prompts(self, found: Iterable[Finding | loss_anomalies.Resolved]) -> None:
        for one in found:
            key = type(one), one.code, one.key
            self.prompts = [each for each in self.prompts if (type(each), each.code, each.key) != key]
            self.prompts.append(one)

    def _add_notice(self, tail: _LogTail, notice: Mapping[str, Any], at: datetime) -> None:
        """Add what a node says of itself: that it lacks the checkpoint to resume from."""
        params = notice.get("params")
        path = params.get("path") if isinstance(params, Mapping) else None
        if notice.get("code") != RESUME_NOT_ON_NODE or not isinstance(path, str):
            return
        name = self.find_node(tail.rank).name
        about = {"path": path[:MAX_PATH_LENGTH], "node": name}
        where = [Where(tail.rank, None, name)]
        self.notices = [one for one in self.notices if one.key != name]
        self.notices.append(Finding("CHECKPOINT_NOT_ON_NODE", Level.WARN, about, where, at.timestamp(), key=name))

    def _add_point(self, tail: _LogTail, point: Point) -> None:
        step = point.step if point.step is not None else self._step_of(tail, point)
        at = self._at(point.time)
        leads = tail.rank == 0 or (tail.rank == self._lead and point.source == points.TEXT)
        if leads and tail.merger.is_best(point):
            self._record_progress(tail, point, step)
            for one in loss_anomalies.check_point(tail.state.setdefault("losses", {}), step, point.values):
                self.losses.append(replace(one, since=at.timestamp()) if isinstance(one, Finding) else one)
        values = tail.merger.select_values(point.source, step, point.values)
        if tail.merger.newly_hidden:
            self.hidden += [(tail.rank, one) for one in tail.merger.newly_hidden]
            for hidden in tail.merger.newly_hidden:
                summaries.remove_series(tail.state, hidden.source, hidden.name)
            self.has_values = True
            tail.merger.newly_hidden.clear()
        if not values:
            return
        if tail.rank <= self.summarized_rank:
            self.summarized_rank = tail.rank
            self.has_values |= summaries.add_values(tail.state, point.source, point.pattern, step, values)
        row = MetricPoint(
            **self._of, rank=tail.rank, step=step, at=at, values=values, source=point.source, pattern=point.pattern
        )
        names = ",".join(values)
        if point.source not in (points.JSON, points.TEXT):
            names = f"{point.source}:{names}"
        kind = str(crc32(names.encode()) % MAX_LINE_KINDS)
        kinds = tail.state.setdefault("kinds", {})
        slot = kinds.setdefault(kind, [0, 0])
        slot[0] += 1
        if slot[1]:
            self.replaced.append(slot[1])
            slot[1] = 0
        self.newest.pop((tail.rank, kind), None)
        dense = tail.get_dense_points(len(values))
        if slot[0] == dense + 1 and tail.thins_early(dense):
            params = {"rank": tail.rank, "kinds": len(kinds)}
            self.events.append(Event(**self._of, at=at, kind="script", code="SCRIPT_METRICS_LEFT_OUT", params=params))
        if slot[0] % (slot[0] // dense + 1):
            self.newest[tail.rank, kind] = slot, row
        else:
            self.points.append(row)

    def _record_progress(self, tail: _LogTail, point: Point, step: int) -> None:
        self.progress = tail.state.setdefault("progress", {})
        self.seconds_left = point.seconds_left
        printed = "step" in self.progress and not self.progress.get("counted")
        if point.step is not None and (printed or not point.is_plain_text):
            total = self._find_total(tail, point, step)
            self.progress["step"] = self._find_position(step, total)
            self.progress.pop("counted", None)
        elif not printed:
            self.progress |= {"step": tail.state.get("steps", step), "counted": True}
            total = tail.state.get("total") or 0
        else:
            total = 0
        _set_total(self.progress, total)
        if name := find_loss(point.values):
            self.progress["loss"] = point.values[name]

    def _find_total(self, tail: _LogTail, point: Point, step: int) -> int:
        """Return of how many steps the training is that is at this step; 0: not known."""
        if self.trainer and self.trainer.total >= step:
            return self.trainer.total
        known = tail.length.printed_steps
        return max(point.total or 0, known if known >= step else 0)

    def _find_position(self, step: int, total: int) -> int:
        """Return how far the training is: a Trainer or a bar may be ahead of the newest line."""
        trainer = self.trainer.step if self.trainer and self.trainer.total == total else 0
        return max(step, trainer, self._get_position(total)) if total else step

    def remove_series(self, rank: int, series: HiddenSeries) -> None:
        """Remove the values of a series from the rows of a rank."""
        for row in [*self.points, *(row for _, row in self.newest.values())]:
            if row.rank == rank and row.source == series.source and series.name in row.values:
                row.values = {name: value for name, value in row.values.items() if name != series.name}
        self.points = [row for row in self.points if row.values]
        self.newest = {key: slot for key, slot in self.newest.items() if slot[1].values}

    def _step_of(self, tail: _LogTail, point: Point) -> int:
        """Return the step of a line that has none: from its epoch if the script's Trainer is known, else its number."""
        epoch = point.values.get("epoch")
        if self.trainer is None or epoch is None:
            counted = "counted" if point.source == points.TEXT else f"counted {point.source}"
            tail.state[counted] = tail.state.get(counted, 0) + 1
            return int(tail.state[counted])
        before, last = tail.state.get("logged", (0, 0.0))
        before = 0 if epoch < last else before  # another training
        step = self.trainer.step_of(epoch, before, trains="loss" in point.values)
        tail.state["logged"] = (step, epoch)
        return step

    def _add_event(self, tail: _LogTail, event: json_lines.PrintedEvent) -> None:
        at = self._at(event.time)
        known = event.event in KNOWN_EVENTS and all(name in event.params for name in KNOWN_EVENTS[event.event])
        if known and event.event == "checkpoint":
            self._add_checkpoint(event, at)
        if self._counts_event(tail, at):
            code = f"SCRIPT_{event.event.upper()}" if known else "SCRIPT_EVENT"
            self.events.append(
                Event(**self._of, at=at, kind="script", code=code, params={"rank": tail.rank, **event.params})
            )

    def _counts_event(self, tail: _LogTail, at: datetime) -> bool:
        """Count an event, and return whether it is kept."""
        count = tail.state["events"] = tail.state.get("events", 0) + 1
        if count == MAX_EVENTS + 1:
            params = {"rank": tail.rank, "limit": MAX_EVENTS}
            self.events.append(Event(**self._of, at=at, kind="script", code="SCRIPT_EVENTS_LEFT_OUT", params=params))
        return bool(count <= MAX_EVENTS)

    def _add_checkpoint(self, event: json_lines.PrintedEvent, at: datetime) -> None:
        step, path = points.parse_integer(event.params["step"]), event.params["path"]
        if step is not None and isinstance(path, str) and path:
            size, loss = (event.params.get(name) for name in ("size_bytes", "val_loss"))
            path = checkpoints.resolve_announced_path(self._cluster, self._task_id, path)
            size, loss = points.parse_integer(size), points.parse_number(loss)
            if len(path) <= MAX_PATH_LENGTH:
                self.checkpoints[path] = Checkpoint(
                    **self._of, step=step, path=path, size_bytes=size, val_loss=loss, at=at
                )

    def _add_found_checkpoint(self, tail: _LogTail, found: FoundCheckpoint, at: datetime) -> None:
        """Add a checkpoint that a runner found. Where nothing says its step, it has the newest one of the attempt."""
        path = checkpoints.resolve_announced_path(self._cluster, self._task_id, found.path)
        step = found.step
        if step is None:
            step = tail.state.get("progress", {}).get("step", tail.state.get("steps", 0))
        if len(path) <= MAX_PATH_LENGTH:
            _, key, name = self.find_node(tail.rank)
            self.found.append(
                Checkpoint(
                    **self._of, step=step, path=path, size_bytes=found.size_bytes, val_loss=found.val_loss, at=at,
                    source=CheckpointSource.RUNNER, layout=found.layout[:MAX_LAYOUT_LENGTH],
                    nodes={key: checkpoint_nodes.describe_report(found, name)},
                )
            )  # fmt: skip
            if not self._counts_event(tail, at):
                self.untold.add(path)

    def find_node(self, rank: int) -> NodePlace:
        """Return the node that has the rank."""
        if self._places is None:
            rows = Node.objects.filter(task_id=self._task_id).order_by("node_rank")
            self._places = [
                NodePlace(place, key or name, name)
                for place, (key, name, processes) in enumerate(rows.values_list("environment_id", "name", "processes"))
                for _ in range(processes)
            ]
        return self._places[rank] if rank < len(self._places) else NodePlace(0, "", "")

    def join_found(self) -> list[Checkpoint]:
        """Return the rows of found checkpoints, without those that the script announces itself: what it says of them
        counts."""
        rows = Checkpoint.objects.filter(task_id=self._task_id, path__in={one.path for one in self.found})
        known = {row.path: row for row in rows}
        announced = {*self.checkpoints, *(row.path for row in rows if row.source == CheckpointSource.SCRIPT)}
        joined: dict[str, Checkpoint] = {}
        for one in self.found:
            if one.path in announced:
                continue
            before = known.get(one.path)
            row, is_new = checkpoint_nodes.join_report(before, one)
            known[one.path] = joined[one.path] = row
            if is_new and row.path not in self.untold:
                params = {"step": row.step, "path": row.path, "layout": row.layout}
                self.events.append(Event(**self._of, at=one.at, kind="script", code="CHECKPOINT_FOUND", params=params))
        return list(joined.values())

    def _at(self, time: float | None) -> datetime:
        """Return the time that the script reports; the time of reading, if it reports none or an impossible one."""
        if time is None or not 0 < time < (self._now + timedelta(days=1)).timestamp():
            return self._now
        return datetime.fromtimestamp(time, UTC)
