"""Reports the progress of attempts inside of an environment as it changes. Standard library only, Python 3.9 or later.

    {"of": "task-x-1", "node": 0, "status": {"state": "running", "ranks": […], "left": true, …}}     at each change
    {"of": "task-x-1", "log": 3, "at": 10240, "bytes": n}  and the bytes     output of rank 3 from there on
    {"of": "task-x-1", "node": 0, "pulse": […]}, {"of": …, "node": 0, "telemetry": […]}     as the runner writes them
    {"of": "task-x-1", "node": 0, "files": [[path, …], …], "more": false, "final": false}  at each change, if requested:
                                                                 what its ranks have written (`output_files.py`);
                                                                 null: the attempt is unknown

`status.state` is that of `fermi.runner.status`: `absent`, `starting`, `running`, `exited` or `lost`; `restarted`: the
container has restarted since; `forbidden`: it was cancelled before it started, and never will. `drained`: it has ended,
nothing of it is left, all its output has been sent, and its files have been listed (`final`).

Files are polled five times a second: there are no notifications here, and a poll costs a few stat calls.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from fermi.inside import container_life, node_runs, protocol
from fermi.inside.output_files import OutputLister
from fermi.runner import files, log_rotation, status, terminate
from fermi.runner.run_names import parse_run_name

POLL_SECONDS = 0.2
CHUNK_BYTES = 256 << 10
MAX_CHUNKS = 8
"""Of one rank's log per poll, so that no rank's output delays the others'."""
END_RETRY_SECONDS = 0.5
LIST_SECONDS, MAX_LIST_SHARE, LIST_ENDED_SECONDS = 2.0, 0.02, 10.0
"""Between two lists of written files, at least; the largest share of time that listing may take; between two lists once
the ranks have ended."""


class MessageStream:
    """The stream: writes each message as a whole, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def write(self, data: bytes) -> None:
        """Write and flush. Raises OSError."""
        with self._lock:
            self._stream.write(data)
            self._stream.flush()


class FollowedAttempt:
    """A followed attempt. `ends`: by rank, how much of its output has been sent; `written`: lists its files, if
    requested."""

    def __init__(self, home: str, name: str, node: int, ends: dict[int, int], *, lists: bool) -> None:
        self.folder, self.name, self.node, self.ends = node_runs.get_run_folder(home, name), name, node, ends
        self.spec = node_runs.get_spec_path(self.folder, node)
        self.paths = files.RunnerPaths(str(self.spec))
        self.stop: tuple[float, float | None] | None = None
        self.stop_at = 0.0
        self.told: dict[str, Any] | None = None
        self.stamps: dict[str, int] = {}
        self.written = OutputLister(home, parse_run_name(name)[0]) if lists else None
        self.listed: dict[str, Any] | None = None
        self.list_at = 0.0

    def status(self) -> dict[str, Any]:
        """Return its status for a message."""
        forbidden = (self.folder / "stop.json").exists()
        if not self.spec.exists():
            return {"state": "absent", "ranks": [], "left": False, "forbidden": forbidden}
        seen = status.read_status(self.spec)
        said: dict[str, Any] = {
            "state": seen.state, "ranks": list(seen.ranks), "left": seen.left, "cause": seen.cause,
            "asked_at": seen.asked_at, "doing": seen.doing,
        }  # fmt: skip
        if seen.state == "absent" and not seen.left:
            said["forbidden"] = forbidden
        if seen.state == "lost" and self._begun_in() != container_life.read_container_life():
            said["restarted"] = True
        return said

    def _begun_in(self) -> str:
        try:
            return (self.folder / node_runs.CONTAINER_NAME).read_text(encoding="utf-8")
        except OSError:
            return ""

    def has_changed(self, path: str) -> bool:
        """Return True if the file has another time than at the last call."""
        try:
            stamp = os.stat(path).st_mtime_ns
        except OSError:
            return False
        changed = self.stamps.get(path) != stamp
        self.stamps[path] = stamp
        return changed

    def list(self, *, over: bool) -> bool:
        """List the written files when it is due, and return True if `listed` has changed."""
        is_final = bool(self.listed and self.listed["final"])
        if self.written is None or (time.monotonic() < self.list_at and over <= is_final):
            return False
        began = time.monotonic()
        rows, more = self.written.list_files(over=over) if self.spec.exists() else (None, False)
        pause = LIST_ENDED_SECONDS if over else LIST_SECONDS
        self.list_at = time.monotonic() + max(pause, (time.monotonic() - began) / MAX_LIST_SHARE)
        found = {"files": rows, "more": more, "final": over}
        changed, self.listed = found != self.listed, found
        return changed

    def log(self, rank: int) -> Path:
        """Return the path of a rank's log."""
        return self.folder / f"{rank}.log"


class AttemptFollower:
    """Follows the attempts of one stream."""

    def __init__(self, home: str, output: MessageStream) -> None:
        self._home, self._output = home, output
        self._attempts: dict[str, FollowedAttempt] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._heard_at = time.monotonic()

    def hear(self) -> None:
        """Record that the platform is still connected."""
        self._heard_at = time.monotonic()

    def follow(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer `follow`: `of`, `node`; `ranks`: by rank, from which byte on its output is wanted; `files`: whether
        written files are reported."""
        ends = {int(rank): int(end) for rank, end in request["ranks"].items()}
        lists = request.get("files") is True
        attempt = FollowedAttempt(self._home, request["of"], int(request["node"]), ends, lists=lists)
        with self._lock:
            self._attempts[attempt.name] = attempt
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
        return {}

    def cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer `cancel`: request the end, again and again until nothing is left. An attempt that has not started
        never will."""
        folder, still = node_runs.get_run_folder(self._home, request["of"]), request.get("still")
        grace, spec = float(request["grace"]), node_runs.get_spec_path(folder, request["node"])
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        terminate.end_runners(folder, [spec] if spec.exists() else [], grace, still)
        with self._lock:
            if attempt := self._attempts.get(request["of"]):
                attempt.stop, attempt.stop_at = (grace, still), time.monotonic() + END_RETRY_SECONDS
                attempt.told = None
        return {}

    def delete_attempt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer `forget`: remove the attempt's folder once nothing of it lives; `gone`: whether that is so."""
        folder = node_runs.get_run_folder(self._home, request["of"])
        specs = [path for path in folder.glob("node-*.json") if "." not in path.stem]
        if any(status.read_status(spec).left for spec in specs):
            return {"gone": False}
        with self._lock:
            self._attempts.pop(request["of"], None)
        shutil.rmtree(folder, ignore_errors=True)
        return {"gone": not folder.exists()}

    def _run(self) -> None:
        alive_at = 0.0
        try:
            while True:
                with self._lock:
                    attempts = list(self._attempts.values())
                if time.monotonic() - self._heard_at > protocol.MAX_SILENCE_SECONDS:
                    os._exit(0)
                busy = False
                for attempt in attempts:
                    busy |= self._look(attempt)
                if time.monotonic() >= alive_at:
                    self._output.write(protocol.encode_line({"alive": time.time()}))
                    alive_at = time.monotonic() + protocol.ALIVE_SECONDS
                if not busy:
                    time.sleep(POLL_SECONDS)
        except (OSError, ValueError):  # the stream is closed
            os._exit(0)

    def _look(self, attempt: FollowedAttempt) -> bool:
        """Report changes of an attempt, and return True if more output is left."""
        if attempt.stop and time.monotonic() >= attempt.stop_at:
            attempt.stop_at = time.monotonic() + END_RETRY_SECONDS
            with contextlib.suppress(OSError):
                terminate.end_runners(attempt.folder, [attempt.spec] if attempt.spec.exists() else [], *attempt.stop)
        found = attempt.status()
        more = [self._send_output(attempt, rank) for rank in list(attempt.ends)]
        over = not found["left"] and found["state"] in ("absent", "exited", "lost")
        if attempt.list(over=over):
            self._output.write(
                protocol.encode_line({"of": attempt.name, "node": attempt.node, **(attempt.listed or {})})
            )
        if over and not any(more) and (found["state"] != "absent" or found.get("forbidden")):
            found["drained"] = True  # its output was read after its end was seen
        if found != attempt.told:
            self._output.write(protocol.encode_line({"of": attempt.name, "node": attempt.node, "status": found}))
            attempt.told = found
        for path, kind in ((attempt.paths.pulse, "pulse"), (attempt.paths.telemetry, "telemetry")):
            if attempt.has_changed(path) and isinstance(said := files.read_json(path), dict):
                told = {"of": attempt.name, "node": attempt.node, kind: said.get(kind)}
                self._output.write(protocol.encode_line(told))
        return any(more)

    def _send_output(self, attempt: FollowedAttempt, rank: int) -> bool:
        """Send output of a rank, and return True if more is left."""
        try:
            log = os.open(attempt.log(rank), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            for _ in range(MAX_CHUNKS):
                end = attempt.ends[rank]
                size = os.fstat(log).st_size
                if end >= size:
                    return False
                at = log_rotation.find_data_start(log, end)
                data = os.pread(log, CHUNK_BYTES, at)
                if not data:
                    return False
                self._output.write(protocol.encode_frame({"of": attempt.name, "log": rank, "at": at}, data))
                attempt.ends[rank] = at + len(data)
            return True
        finally:
            os.close(log)
