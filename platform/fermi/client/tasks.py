"""Training tasks: create, watch, stop."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from fermi.client.environments import Completed, run_to_end
from fermi.client.errors import FermiError
from fermi.client.logs import LogLine, follow_log, read_log
from fermi.client.pagination import Listing
from fermi.client.sse import Event, stream
from fermi.client.transport import Transport, build_telemetry_params
from fermi.client.types import (
    CheckpointItem,
    FirstError,
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
)

if TYPE_CHECKING:
    from fermi.client.channels import ChannelAddress

PATIENCE_S = 300.0  # how long the platform may be away (a restart, an upgrade) before following gives up


class Tasks:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, request: TaskCreateRequest, *, idempotency_key: str | None = None) -> TaskCreated:
        """Sent again when no answer came, under one key (made here unless given), so that there is one task."""
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._transport.call("POST", "/training-tasks", json=request, headers=headers, repeatable=True)

    def preview(self, request: TaskCreateRequest) -> TaskPreview:
        """What `create` would do: ranks, environments, files, the engine's objects, problems and warnings."""
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
    ) -> Listing[TaskBrief]:
        """Newest first unless `ordering` says otherwise. Several statuses mean any of them; times are ISO 8601. In any
        other order than that of their creation, a list is the newest 5,000 of the tasks that match."""
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
        }
        return Listing(self._transport, "/training-tasks", filters)

    def get(self, task_id: str) -> TaskDetail:
        return self._transport.call("GET", _path(task_id))

    def diagnosis(self, task_id: str) -> TaskDiagnosis:
        """Why it is as it is: what, since when, where, the evidence, and what to do next."""
        return self._transport.call("GET", _path(task_id, "/diagnosis"))

    def restart(
        self, task_id: str, *, leave_out: Sequence[str] = (), use_spares: bool = False, code: str = "auto"
    ) -> TaskDetail:
        """Goes on from the newest checkpoint: a task that runs by its next attempt, one that has ended by a new task.
        Gives the task that goes on. `leave_out`: environments to do without, or in whose places spares go; `code`: as
        `retry` takes it, of a task that has ended."""
        choice = {} if code == "auto" else {"code": code}  # an older platform knows none
        body = {"leaveOut": list(leave_out), "useSpares": use_spares, **choice}
        return self._transport.call("POST", _path(task_id, "/restart"), json=body)

    def pulses(self, task_id: str) -> TaskPulses:
        """How the ranks of a task that runs get on now: step, share of time in collectives, memory."""
        return self._transport.call("GET", _path(task_id, "/pulses"))

    def grow(self, task_id: str) -> TaskDetail:
        """Asks an elastic task to save and go on with all nodes that are there now."""
        return self._transport.call("POST", _path(task_id, "/grow"), repeatable=True)

    def stop(self, task_id: str) -> TaskDetail:
        """Asks it to stop and does not wait; asking again changes nothing."""
        return self._transport.call("POST", _path(task_id, "/stop"), repeatable=True)

    def pause(self, task_id: str) -> TaskDetail:
        """Asks it to save and to give its environments back; it rests in the queue until it is resumed. Asking again
        changes nothing."""
        return self._transport.call("POST", _path(task_id, "/pause"), repeatable=True)

    def resume(self, task_id: str) -> TaskDetail:
        """A paused task goes on from its newest checkpoint when its turn comes."""
        return self._transport.call("POST", _path(task_id, "/resume"), repeatable=True)

    def queue(self, task_id: str) -> TaskQueue:
        """Why it has not begun: its place in the queue, what must end first, when it will probably begin, and what
        would let it begin sooner."""
        return self._transport.call("GET", _path(task_id, "/queue"))

    def move(self, task_id: str, before: str | None = None) -> TaskQueue:
        """Puts a task that waits before another one of its project and class, or behind all of them (maintainer)."""
        return self._transport.call("POST", _path(task_id, "/move"), json={"before": before}, repeatable=True)

    def retry(self, task_id: str, *, code: str = "auto", snapshot: str | None = None) -> TaskCreated:
        """A new task with the same request, going on from the newest checkpoint. `code`: "snapshot" runs the code that
        the task ran, "current" takes it anew from where it came from, "auto" does so where that has changed;
        `snapshot`: runs another snapshot of the project."""
        body = {"code": code, **({"snapshot": snapshot} if snapshot else {})}
        return self._transport.call("POST", _path(task_id, "/retry"), json=body)

    def clone(self, task_id: str) -> TaskClone:
        """The request it was made from, to be changed and created anew."""
        return self._transport.call("POST", _path(task_id, "/clone"), repeatable=True)

    def code(self, task_id: str) -> TaskCode:
        """Its snapshot, where it came from, and the one of the task before it of its name."""
        return self._transport.call("GET", _path(task_id, "/code"))

    def code_source(self, task_id: str) -> TaskCodeSource:
        """Where its code came from, and whether it has changed there since."""
        return self._transport.call("GET", _path(task_id, "/code/source"))

    def delete(self, task_id: str) -> None:
        """With its logs and checkpoints; Conflict unless it has ended."""
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
        """All points in the order they came in, after point id `after` if given."""
        filters = {"names": names, "attempt": attempt, "rank": rank}
        while True:
            page = self._transport.call("GET", _path(task_id, "/metrics"), params={**filters, "after": after})
            yield from page["items"]
            after = page["next"]
            if after is None or not page["items"]:
                return

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
        """What its nodes, GPUs and ranks used, as series on one grid. Without `metrics` those of a first look; over the
        task's whole life unless `begins` or `ends` (ISO 8601) say otherwise."""
        params = build_telemetry_params(metrics, begins, ends, points)
        return self._transport.call(
            "GET", _path(task_id, "/telemetry"), params={**params, "node": nodes, "rank": ranks}
        )

    def use(self, task_id: str) -> TaskUse:
        """What each rank uses now."""
        return self._transport.call("GET", _path(task_id, "/telemetry/now"))

    def usage(self, task_id: str) -> TaskUsage:
        """What its time went into, how much of it moved training forward, and what it cost; up to now."""
        return self._transport.call("GET", _path(task_id, "/usage"))

    def scaling(self, task_id: str) -> TaskScaling:
        """The speed that was to be expected, and the task's own."""
        return self._transport.call("GET", _path(task_id, "/scaling"))

    def checkpoints(self, task_id: str) -> Listing[CheckpointItem]:
        return Listing(self._transport, _path(task_id, "/checkpoints"), {})

    def plan(self, task_id: str, *, attempt: int | None = None) -> TaskPlan:
        """What was rendered for an attempt, by default the newest."""
        return self._transport.call("GET", _path(task_id, "/plan"), params={"attempt": attempt})

    def scripts(self, task_id: str, *, target: str = "shell", master_port: int | None = None) -> bytes:
        """A .tar.gz of scripts, rendered files and a README to start the task by hand; `target`: shell, torchrun,
        slurm, kubernetes or compose."""
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
        """Lines of the newest attempt, or of the one asked for. With `follow`, also those still to come, attempt after
        attempt (unless one was asked for), until the task has ended. A progress bar is a line with `open`, which comes
        again as it grows, until it ends.

        `search` is a text in upper or lower case, with `regex` an expression as RE2 reads it. `level` (debug, info,
        warning, error): of that level or graver. `since`, `until`: printed in between. `begin`: from this offset on,
        which wants `attempt` and one rank."""
        if begin is not None and (attempt is None or rank == "all"):
            raise ValueError("begin= wants rank= and attempt=: it is a place in one log")
        cursor = None if begin is None else f"{attempt}@{rank}:{begin}"
        path = _path(task_id, "/logs")
        params = {
            "rank": rank,
            "search": search,
            "regex": regex or None,
            "level": level,
            "since": _iso(since),
            "until": _iso(until),
        }
        if follow:
            task = partial(self._get, task_id, PATIENCE_S)
            return follow_log(self._transport, path, params, task, attempt, PATIENCE_S, cursor)
        return read_log(self._transport, path, params, attempt, cursor)

    def first_error(
        self, task_id: str, *, rank: int | Literal["all"] = "all", attempt: int | None = None
    ) -> FirstError:
        """Where the first line is that says it is an error (`found`, or None). `complete`: no earlier one can have been
        left out of the middle of a long log."""
        params = {"rank": rank, "attempt": attempt}
        return self._transport.call("GET", _path(task_id, "/logs/first-error"), params=params)

    def download_log(self, task_id: str, *, rank: int = 0, attempt: int | None = None) -> Iterator[bytes]:
        """The whole log of a rank, piece by piece."""
        path, params = _path(task_id, "/logs/download"), {"rank": rank, "attempt": attempt}
        with self._transport.open(path, params=params) as response:
            yield from response.iter_bytes()

    def stream(
        self,
        task_id: str,
        *,
        logs: int | Literal["none", "all"] = "none",
        last_event_id: str = "",
        patience: float | None = PATIENCE_S,
        on_break: Callable[[FermiError], None] | None = None,
    ) -> Iterator[Event]:
        """What happens to the task, as it happens: `status`, `event`, `metric`, `log`, and `end` when there will be no
        more. Goes on by itself after a broken connection; `last_event_id` goes on where an earlier stream was left.
        A `metric` event's data is always `{"items": [...]}`."""
        for event in stream(
            self._transport,
            _path(task_id, "/stream"),
            params={"logs": logs},
            last_id=last_event_id,
            patience=patience,
            on_break=on_break,
        ):
            single = event.kind == "metric" and "items" not in event.data
            yield event._replace(data={"items": [event.data]}) if single else event

    def wait(self, task_id: str, *, timeout: float | None = None, patience: float = PATIENCE_S) -> TaskDetail:
        """The task once it has ended, however it ended. TimeoutError after `timeout` seconds; a platform that is away
        for less than `patience` seconds is waited for."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while True:
            task = self._get(task_id, min(patience, deadline - time.monotonic()))
            if task["endedAt"] is not None:
                return task
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{task_id} has not ended within {timeout:g} s")
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, 1.0)

    def run(
        self,
        task_id: str,
        command: Sequence[str],
        *,
        rank: int = 0,
        stdin: bytes = b"",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Runs a command beside a running rank: on its node, with its variables, in its working directory."""
        return run_to_end(self.channel(task_id, rank), command, stdin=stdin, cwd=cwd, env=env)

    def channel(self, task_id: str, rank: int = 0) -> "ChannelAddress":
        """The way to a running rank, for `fermi.client.channels`."""
        return self._transport.channel_address(_path(task_id, f"/ranks/{rank}/channel"))

    def _get(self, task_id: str, patience: float) -> TaskDetail:
        return self._transport.call("GET", _path(task_id), patience=patience)


def _iso(moment: str | datetime | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


def _path(task_id: str, rest: str = "") -> str:
    return f"/training-tasks/{quote(task_id, safe='')}{rest}"
