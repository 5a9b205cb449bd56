"""A web process's cache of workers, so that a heartbeat costs no query: their tokens, what each is to do, and reports
that are not stored yet.

    heartbeat ──hear──▶ answer from `_known`, added to `_heard`
                refresh: what is newer than the known revision ◀── database ◀── flush: all reports, in one transaction

The database has the truth. The desired state may be as old as the last refresh; what is lost with the process is
reported again by the next heartbeat.
"""

import hmac
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Case, F, When

from apps.common.clock import now
from apps.common.texts import render_text
from apps.training.public import enqueue_tasks
from apps.workers import health, revisions, tokens
from apps.workers.heartbeat.schema import HeartbeatEntry
from apps.workers.models import HostRun, Listening, Order, Report, Worker
from fermi.runner.run_names import parse_run_name

STORE_AGAIN_AFTER = timedelta(seconds=30)
"""How often an unchanged state of a process is stored again, which corrects what another web process stored too late.
"""

_UPDATE_REPORT = f"""UPDATE {Report._meta.db_table}
SET at = %s, incarnation = %s, sequence = %s, applied = %s, process = %s, usage = %s, pulse = %s
WHERE worker_id = %s AND (incarnation <> %s OR sequence < %s)"""

_UPDATE_ORDER = f"""UPDATE {Order._meta.db_table}
SET state = %s, pid = %s, exit_code = %s, ended_at = %s, "left" = %s, asked = %s, still_since = %s, cause = %s,
    error = %s, stalled = %s, kill = %s, course = %s, incarnation = %s, sequence = %s
WHERE launch_id = %s AND worker = %s AND (incarnation <> %s OR sequence < %s)"""


_UPDATE_HOSTED = f"""UPDATE {HostRun._meta.db_table}
SET said = %s, incarnation = %s, sequence = %s
WHERE name = %s AND worker = %s AND (incarnation <> %s OR sequence < %s)"""


@dataclass(slots=True)
class _CachedWorker:
    """A worker as cached. `process`: as it was last stored, and when; `environments`, `environments_stored_at`: the
    same of dev environments, and of those that are gone."""

    digest: str
    generation: int
    desired: dict[str, Any]
    hosted: dict[str, Any]
    process: Any = None
    stored_at: datetime | None = None
    environments: Any = None
    environments_stored_at: datetime | None = None


@dataclass(slots=True)
class _PendingReports:
    """Reports that are not stored yet: by worker, the last heartbeat and its time; by attempt and worker, the last
    change of that attempt's process."""

    beats: dict[str, tuple[datetime, HeartbeatEntry]] = field(default_factory=dict)
    processes: dict[tuple[str, str], HeartbeatEntry] = field(default_factory=dict)
    hosted: dict[str, HeartbeatEntry] = field(default_factory=dict)  # by worker


class HeartbeatCache:
    """Cache of workers. `on_change` is called with the ids of workers whose desired state changed."""

    def __init__(self, on_change: Callable[[Collection[str]], None] = lambda _: None) -> None:
        self._on_change = on_change
        self._known: dict[str, _CachedWorker] = {}
        self._heard = _PendingReports()
        self._guard = threading.Lock()  # of `_heard`
        self._revision = 0
        self.urgent = False  # a process changed: others wait for that to be stored

    def __len__(self) -> int:
        return len(self._known)

    # Asked by heartbeats; no query ------------------------------------------------------------------------------------

    def strangers(self, beats: Iterable[HeartbeatEntry]) -> list[str]:
        """Return workers that are not cached, or whose token is wrong: they are loaded before their heartbeat is
        handled."""
        return [beat.worker for beat in beats if not self._is_known(beat)]

    def hear(self, beats: Sequence[HeartbeatEntry], lang: str | None = None) -> list[dict[str, Any]]:
        """Add the reports, and return what each worker is to do."""
        moment = now()
        for beat in beats:
            if self._is_known(beat):
                self._note(beat, moment)
        return self.answers(beats, lang)

    def answers(self, beats: Sequence[HeartbeatEntry], lang: str | None = None) -> list[dict[str, Any]]:
        return [self._answer(beat, lang) for beat in beats]

    def has_news(self, beats: Iterable[HeartbeatEntry]) -> bool:
        """Return True if a worker has not acted on the newest desired state yet, or is unknown."""
        return any(not self._is_known(beat) or self._known[beat.worker].generation != beat.generation for beat in beats)

    def _is_known(self, beat: HeartbeatEntry) -> bool:
        known = self._known.get(beat.worker)
        return known is not None and hmac.compare_digest(known.digest, tokens.hash_token(beat.token))

    def _note(self, beat: HeartbeatEntry, moment: datetime) -> None:
        known, process = self._known[beat.worker], beat.process
        with self._guard:
            self._heard.beats[beat.worker] = moment, beat
            if beat.hosted or beat.gone:
                self._note_hosted(known, beat, moment)
            if process is None:
                return
            lasting = {**process, "doing": None}  # its present activity is stored with its worker's report
            changed = lasting != known.process
            if changed or known.stored_at is None or moment - known.stored_at > STORE_AGAIN_AFTER:
                self._heard.processes[process["name"], beat.worker] = beat
                known.process, known.stored_at = lasting, moment
                self.urgent = self.urgent or changed

    def _note_hosted(self, cached: _CachedWorker, beat: HeartbeatEntry, moment: datetime) -> None:
        said = beat.hosted, beat.gone
        if (
            said != cached.environments
            or cached.environments_stored_at is None
            or moment - cached.environments_stored_at > STORE_AGAIN_AFTER
        ):
            self._heard.hosted[beat.worker] = beat
            self.urgent = self.urgent or _extract_phases(said) != _extract_phases(cached.environments)
            cached.environments, cached.environments_stored_at = said, moment

    def _answer(self, beat: HeartbeatEntry, lang: str | None) -> dict[str, Any]:
        known = self._known.get(beat.worker)
        if known is None or not self._is_known(beat):
            code = "WORKER_UNKNOWN" if known is None else "WORKER_TOKEN_INVALID"
            message = render_text(code, {"workers": beat.worker}, lang)[0]
            nothing = {"generation": 0, "order": None, "stop": None, "hosted": None}
            return {"id": beat.worker, **nothing, "error": {"code": code, "message": message}}
        return {
            "id": beat.worker,
            "generation": known.generation,
            "order": known.desired.get("order"),
            "stop": known.desired.get("stop"),
            "hosted": known.hosted or None,
            "error": None,
        }

    # The database -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Load what has changed: two queries if nothing has, else three, however many workers there are."""
        newest = revisions.read_newest_revision()
        if newest == self._revision:
            return
        since = self._revision if newest > self._revision else -1
        changed = self._load(Worker.objects.filter(generation__gt=since))
        if since < 0 or Worker.objects.count() != len(self._known):
            there = set(Worker.objects.values_list("pk", flat=True))
            for gone in self._known.keys() - there:
                del self._known[gone]
                changed.append(gone)
        self._revision = newest
        if changed:
            self._on_change(changed)

    def load(self, workers: Collection[str]) -> None:
        """Load these workers, whatever is cached of them."""
        self._load(Worker.objects.filter(pk__in=workers))

    def _load(self, rows: Any) -> list[str]:
        changed = []
        for key, *told in rows.values_list("pk", "digest", "generation", "desired", "hosted"):
            before = self._known.get(key)
            if before is None:
                self._known[key] = _CachedWorker(*told)
            else:
                before.digest, before.generation, before.desired, before.hosted = told
            changed.append(key)
        return changed

    def flush(self) -> int:
        """Store all reports since the last call, and that this process listens. Returns the number of rows."""
        with self._guard:
            heard, self._heard, self.urgent = self._heard, _PendingReports(), False
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    if heard.beats:
                        cursor.executemany(_UPDATE_REPORT, [_build_report_row(*one) for one in heard.beats.values()])
                    if heard.processes:
                        cursor.executemany(_UPDATE_ORDER, [_build_order_row(beat) for beat in heard.processes.values()])
                    if rows := [row for beat in heard.hosted.values() for row in _build_hosted_rows(beat)]:
                        cursor.executemany(_UPDATE_HOSTED, rows)
                for worker, beat in heard.hosted.items():
                    if beat.gone:
                        HostRun.objects.filter(worker=worker, removing=True, environment__in=beat.gone).update(
                            gone=True
                        )
                record_listening()
        except BaseException:
            with self._guard:
                beats = {**heard.beats, **self._heard.beats}
                processes, hosted = heard.processes | self._heard.processes, heard.hosted | self._heard.hosted
                self._heard = _PendingReports(beats, processes, hosted)
            raise
        enqueue_tasks({parse_run_name(name)[0] for name, _ in heard.processes})
        return len(heard.beats) + len(heard.processes)


def record_listening() -> None:
    """Record that heartbeats can be received now."""
    moment = now()
    since = Case(When(heard_at__lt=moment - health.MAX_LISTEN_GAP, then=moment), default=F("since"))
    if not Listening.objects.filter(pk=1).update(since=since, heard_at=moment):
        Listening.objects.bulk_create([Listening(pk=1, since=moment, heard_at=moment)], ignore_conflicts=True)


def _build_report_row(at: datetime, beat: HeartbeatEntry) -> tuple[Any, ...]:
    ops = connection.ops
    return (
        ops.adapt_datetimefield_value(at), beat.incarnation[:64], beat.sequence, beat.generation,
        ops.adapt_json_value(beat.process or {}, None), ops.adapt_json_value(dict(beat.usage), None),
        _adapt_json(beat.pulse),
        beat.worker, beat.incarnation[:64], beat.sequence,
    )  # fmt: skip


def _build_order_row(beat: HeartbeatEntry) -> tuple[Any, ...]:
    process = beat.process
    assert process is not None
    return (
        process["state"], process.get("pid"), process.get("exitCode"), process.get("endedAt"), process.get("left"),
        bool(process.get("asked")), process.get("stillSince"),
        connection.ops.adapt_json_value(process.get("cause") or {}, None),
        *(_adapt_json(process.get(name)) for name in ("error", "stalled", "kill", "course")),
        beat.incarnation[:64], beat.sequence, process["name"], beat.worker, beat.incarnation[:64], beat.sequence,
    )  # fmt: skip


def _build_hosted_rows(beat: HeartbeatEntry) -> list[tuple[Any, ...]]:
    said = beat.incarnation[:64], beat.sequence
    adapt = connection.ops.adapt_json_value
    return [(adapt(dict(seen), None), *said, name, beat.worker, *said) for name, seen in beat.hosted.items()]


def _extract_phases(reported: Any) -> Any:
    """Return the part that others wait for, without what users do in the environments."""
    if reported is None:
        return None
    return {name: (one["phase"], one["left"], one.get("cause")) for name, one in reported[0].items()}, reported[1]


def _adapt_json(value: Any) -> Any:
    return None if value is None else connection.ops.adapt_json_value(value, None)
