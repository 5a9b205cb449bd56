"""Training tasks: create, follow, stop, and everything about one task."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from fermi.client.environments import CompletedCommand, run_command
from fermi.client.errors import FermiError
from fermi.client.logs import LogLine, follow_log, read_log
from fermi.client.pagination import Listing
from fermi.client.sse import Event, stream_events
from fermi.client.transport import MAX_OUTAGE_SECONDS, Transport, build_telemetry_params
from fermi.client.types import (
    CheckpointItem,
    FirstError,
    LogPattern,
    LogPatternList,
    MediaItem,
    MetricItem,
    TaskBrief,
    TaskClone,
    TaskCode,
    TaskCodeSource,
    TaskCreated,
    TaskCreateRequest,
    TaskDetail,
    TaskDiagnosis,
    TaskEvent,
    TaskPlan,
    TaskPreview,
    TaskPulses,
    TaskQueue,
    TaskScaling,
    TaskTelemetry,
    TaskUsage,
    TaskUse,
    TrackerRunList,
    TrackerSyncCreated,
)

if TYPE_CHECKING:
    from fermi.client.transport import ChannelAddress


class Tasks:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, request: TaskCreateRequest, *, idempotency_key: str | None = None) -> TaskCreated:
        """Create a task. A request without an answer is repeated under one idempotency key (generated unless given), so
        that one task is created. Raise InvalidRequestError with all problems of the request."""
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._transport.call("POST", "/training-tasks", json=request, headers=headers, repeatable=True)

    def preview(self, request: TaskCreateRequest) -> TaskPreview:
        """Return what `create` would do: ranks, environments, files, the engine's objects, problems and warnings."""
        return self._transport.call("POST", "/training-tasks/preview", json=request, repeatable=True)

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        framework: str | None = None,
        environment: str | None = None,
        zone: str | None = None,
        owner: str | None = None,
        project: str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        search: str | None = None,
        ordering: str | None = None,
        parameter: str | Sequence[str] | None = None,
    ) -> Listing[TaskBrief]:
        """Return tasks, newest first unless `ordering` says otherwise. Several statuses mean any of them; times are ISO
        8601. `parameter`: conditions such as `lr=0.001` or `lr>0.001`, all of which hold. In any other order than that
        of creation, the list is limited to the newest 5,000 matching tasks."""
        filters = {
            "status": status,
            "framework": framework,
            "environment": environment,
            "zone": zone,
            "owner": owner,
            "project": project,
            "createdAfter": created_after,
            "createdBefore": created_before,
            "search": search,
            "ordering": ordering,
            "parameter": parameter,
        }
        return Listing(self._transport, "/training-tasks", filters)

    def get(self, task_id: str) -> TaskDetail:
        return self._transport.call("GET", _path(task_id))

    def diagnosis(self, task_id: str) -> TaskDiagnosis:
        """Return the task's diagnosis: findings with cause, start, location, evidence, and what to do next."""
        return self._transport.call("GET", _path(task_id, "/diagnosis"))

    def restart(
        self, task_id: str, *, leave_out: Sequence[str] = (), use_spares: bool = False, code: str = "auto"
    ) -> TaskDetail:
        """Continue from the newest checkpoint: a running task with its next attempt, one that has ended as a new task.
        Return the task that continues. `leave_out`: environments not to use, or to replace by spares (`use_spares`);
        `code`: as in `retry`, for a task that has ended."""
        choice = {} if code == "auto" else {"code": code}  # an older platform knows none
        body = {"leaveOut": list(leave_out), "useSpares": use_spares, **choice}
        return self._transport.call("POST", _path(task_id, "/restart"), json=body)

    def pulses(self, task_id: str) -> TaskPulses:
        """Return the progress of each rank of a running task: step, share of time in collectives, memory."""
        return self._transport.call("GET", _path(task_id, "/pulses"))

    def grow(self, task_id: str) -> TaskDetail:
        """Request that an elastic task saves and continues with all nodes that are available now."""
        return self._transport.call("POST", _path(task_id, "/grow"), repeatable=True)

    def stop(self, task_id: str) -> TaskDetail:
        """Request the task's stop and return it without waiting; repeating the request changes nothing."""
        return self._transport.call("POST", _path(task_id, "/stop"), repeatable=True)

    def pause(self, task_id: str) -> TaskDetail:
        """Request that the task saves and releases its environments; it stays in the queue until it is resumed.
        Repeating the request changes nothing."""
        return self._transport.call("POST", _path(task_id, "/pause"), repeatable=True)

    def resume(self, task_id: str) -> TaskDetail:
        """Return a paused task to the queue; it continues from its newest checkpoint."""
        return self._transport.call("POST", _path(task_id, "/resume"), repeatable=True)

    def queue(self, task_id: str) -> TaskQueue:
        """Return why the task has not started: its position in the queue, what must end first, when it will probably
        start, and what would let it start sooner."""
        return self._transport.call("GET", _path(task_id, "/queue"))

    def move(self, task_id: str, before: str | None = None) -> TaskQueue:
        """Put a waiting task before another one of its project and priority class, or behind all of them. Needs a
        maintainer."""
        return self._transport.call("POST", _path(task_id, "/move"), json={"before": before}, repeatable=True)

    def retry(self, task_id: str, *, code: str = "auto", snapshot: str | None = None) -> TaskCreated:
        """Create a task with the same request, which continues from the newest checkpoint. `code`: "snapshot" runs the
        code that the task ran, "current" reads it again from its origin, "auto" does so where it has changed there;
        `snapshot`: another snapshot of the project to run."""
        body = {"code": code, **({"snapshot": snapshot} if snapshot else {})}
        return self._transport.call("POST", _path(task_id, "/retry"), json=body)

    def clone(self, task_id: str) -> TaskClone:
        """Return the request that the task was created from, to be changed and submitted again."""
        return self._transport.call("POST", _path(task_id, "/clone"), repeatable=True)

    def code(self, task_id: str) -> TaskCode:
        """Return the task's code snapshot, its origin, and the snapshot of the previous task of the same name."""
        return self._transport.call("GET", _path(task_id, "/code"))

    def code_source(self, task_id: str) -> TaskCodeSource:
        """Return the origin of the task's code, and whether it has changed there since."""
        return self._transport.call("GET", _path(task_id, "/code/source"))

    def delete(self, task_id: str) -> None:
        """Delete the task with its logs and checkpoints. Raise ConflictError unless it has ended."""
        self._transport.call("DELETE", _path(task_id))

    def events(self, task_id: str) -> Listing[TaskEvent]:
        return Listing(self._transport, _path(task_id, "/events"), {})

    def metrics(
        self,
        task_id: str,
        *,
        names: Sequence[str] | None = None,
        attempt: int | None = None,
        rank: int | None = None,
        after: int | str | None = None,
    ) -> Iterator[MetricItem]:
        """Yield all points in the order of arrival, after the point with id `after` where given."""
        filters = {"names": names, "attempt": attempt, "rank": rank}
        while True:
            page = self._transport.call("GET", _path(task_id, "/metrics"), params={**filters, "after": after})
            yield from page["items"]
            after = page["next"]
            if after is None or not page["items"]:
                return

    def log_patterns(self, task_id: str) -> LogPatternList:
        """Return the shapes of printed lines that became curves of the task."""
        return self._transport.call("GET", _path(task_id, "/log-patterns"))

    def change_log_pattern(
        self, task_id: str, key: str, *, enabled: bool | None = None, fields: Mapping[str, str] | None = None
    ) -> LogPattern:
        """Switch the pattern on or off, name its fields (printed name -> name) or leave them out (empty name), in all
        points of the task. Return the pattern."""
        changes = {"enabled": enabled, "fields": fields}
        body = {name: value for name, value in changes.items() if value is not None}
        return self._transport.call("PATCH", _path(task_id, f"/log-patterns/{quote(key)}"), json=body)

    def telemetry(
        self,
        task_id: str,
        *,
        metrics: Sequence[str] = (),
        nodes: Sequence[int] = (),
        ranks: Sequence[int] = (),
        begins: str | None = None,
        ends: str | None = None,
        points: int | None = None,
    ) -> TaskTelemetry:
        """Return what its nodes, GPUs and ranks used, as series on one time grid. Without `metrics` those of an
        overview; over the task's whole run time unless `begins` or `ends` (ISO 8601) say otherwise."""
        params = build_telemetry_params(metrics, begins, ends, points)
        return self._transport.call(
            "GET", _path(task_id, "/telemetry"), params={**params, "node": nodes, "rank": ranks}
        )

    def use(self, task_id: str) -> TaskUse:
        """Return what each rank uses now."""
        return self._transport.call("GET", _path(task_id, "/telemetry/now"))

    def usage(self, task_id: str) -> TaskUsage:
        """Return what the task's time was spent on, how much of it was productive, and its cost; up to now."""
        return self._transport.call("GET", _path(task_id, "/usage"))

    def scaling(self, task_id: str) -> TaskScaling:
        """Return the expected speed and the task's measured one."""
        return self._transport.call("GET", _path(task_id, "/scaling"))

    def media(self, task_id: str, *, kind: str | None = None, name: str | None = None) -> Listing[MediaItem]:
        """Return the images, texts, tables and histograms that the script logged."""
        return Listing(self._transport, _path(task_id, "/media"), {"kind": kind, "name": name})

    def tracker_runs(self, task_id: str) -> TrackerRunList:
        """Return the runs that the script began at W&B: `items`, each with its `url` or its `folder` in the outputs,
        and the task's `own`."""
        return self._transport.call("GET", _path(task_id, "/tracker-runs"))

    def sync_tracker_runs(
        self, task_id: str, *, environment: str | None = None, secret: str | None = None
    ) -> TrackerSyncCreated:
        """Create the task that sends the runs which were offline, with a secret of the project as the key, and return
        its id. Raise ConflictError where there are none, the task has not ended, or the project has no such secret."""
        given = {"environmentId": environment, "secret": secret}
        body = {name: value for name, value in given.items() if value}
        return self._transport.call("POST", _path(task_id, "/tracker-runs/sync"), json=body)

    def checkpoints(self, task_id: str) -> Listing[CheckpointItem]:
        return Listing(self._transport, _path(task_id, "/checkpoints"), {})

    def plan(self, task_id: str, *, attempt: int | None = None) -> TaskPlan:
        """Return what was rendered for an attempt, by default the newest."""
        return self._transport.call("GET", _path(task_id, "/plan"), params={"attempt": attempt})

    def scripts(self, task_id: str, *, target: str = "shell", master_port: int | None = None) -> bytes:
        """Return a .tar.gz of scripts, rendered files and a README to start the task by hand; `target`: shell,
        torchrun, slurm, kubernetes or compose."""
        params = {"target": target, "masterPort": master_port}
        with self._transport.open(_path(task_id, "/scripts"), params=params) as response:
            return response.read()

    def logs(
        self,
        task_id: str,
        *,
        rank: int | Literal["all"] = 0,
        attempt: int | None = None,
        search: str | None = None,
        regex: bool = False,
        level: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        begin: int | None = None,
        follow: bool = False,
    ) -> Iterator[LogLine]:
        """Yield lines of the newest attempt, or of the given one. With `follow`, also those still to come, attempt
        after attempt (unless one was given), until the task has ended. A progress bar is a line with `open`, which is
        yielded again as it changes, until it is complete.

        `search` is a text in upper or lower case, with `regex` an RE2 expression. `level` (debug, info, warning,
        error): of that level or more severe. `since`, `until`: printed in between. `begin`: from this offset on, which
        needs `attempt` and one rank. Raise ValueError where they are missing.
        """
        if begin is not None and (attempt is None or rank == "all"):
            raise ValueError("begin= wants rank= and attempt=: it is a place in one log")
        cursor = None if begin is None else f"{attempt}@{rank}:{begin}"
        path = _path(task_id, "/logs")
        params = {
            "rank": rank,
            "search": search,
            "regex": regex or None,
            "level": level,
            "since": _format_moment(since),
            "until": _format_moment(until),
        }
        if follow:
            task = partial(self._get, task_id, MAX_OUTAGE_SECONDS)
            return follow_log(self._transport, path, params, task, attempt, MAX_OUTAGE_SECONDS, cursor)
        return read_log(self._transport, path, params, attempt, cursor)

    def first_error(
        self, task_id: str, *, rank: int | Literal["all"] = "all", attempt: int | None = None
    ) -> FirstError:
        """Return the location of the first line that is an error (`found`, or None). `complete`: no earlier one can be
        in the part of a long log that was left out."""
        params = {"rank": rank, "attempt": attempt}
        return self._transport.call("GET", _path(task_id, "/logs/first-error"), params=params)

    def download_log(self, task_id: str, *, rank: int = 0, attempt: int | None = None) -> Iterator[bytes]:
        """Yield the whole log of a rank, piece by piece."""
        path, params = _path(task_id, "/logs/download"), {"rank": rank, "attempt": attempt}
        with self._transport.open(path, params=params) as response:
            yield from response.iter_bytes()

    def stream(
        self,
        task_id: str,
        *,
        logs: int | Literal["none", "all"] = "none",
        last_event_id: str = "",
        patience: float | None = MAX_OUTAGE_SECONDS,
        on_break: Callable[[FermiError], None] | None = None,
    ) -> Iterator[Event]:
        """Yield the task's events as they happen: `status`, `event`, `metric`, `log`, and `end` as the last one.
        Reconnects after a broken connection; `last_event_id` resumes an earlier stream. A `metric` event's data is
        always `{"items": [...]}`."""
        for event in stream_events(
            self._transport,
            _path(task_id, "/stream"),
            params={"logs": logs},
            last_id=last_event_id,
            patience=patience,
            on_break=on_break,
        ):
            single = event.kind == "metric" and "items" not in event.data
            yield event._replace(data={"items": [event.data]}) if single else event

    def wait(self, task_id: str, *, timeout: float | None = None, patience: float = MAX_OUTAGE_SECONDS) -> TaskDetail:
        """Wait for the task's end and return it. Raise TimeoutError after `timeout` seconds. A platform that is
        unreachable for less than `patience` seconds is waited for."""
        return self._transport.wait(_path(task_id), _has_ended, task_id, timeout, patience)

    def run(
        self,
        task_id: str,
        command: Sequence[str],
        *,
        rank: int = 0,
        stdin: bytes = b"",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> CompletedCommand:
        """Run a command next to a running rank (on its node, with its variables, in its working directory), wait for
        its end and return the result."""
        return run_command(self.channel(task_id, rank), command, stdin=stdin, cwd=cwd, env=env)

    def channel(self, task_id: str, rank: int = 0) -> "ChannelAddress":
        """Return the channel address of a running rank, for `fermi.client.channels`."""
        return self._transport.channel_address(_path(task_id, f"/ranks/{rank}/channel"))

    def _get(self, task_id: str, patience: float) -> TaskDetail:
        return self._transport.call("GET", _path(task_id), patience=patience)


def _has_ended(task: TaskDetail) -> bool:
    return task["endedAt"] is not None


def _format_moment(moment: str | datetime | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


def _path(task_id: str, rest: str = "") -> str:
    return f"/training-tasks/{quote(task_id, safe='')}{rest}"
