"""Download of pods' logs into files, one per rank: <data>/logs/<task>/<attempt>/<rank>.log, and beside them

    node-<k>.json   its runner's last report of its ranks, what it does before they start (`doing`), and their progress
                    (`pulse`); `since`: from where to ask again; `drained`: read to the end; `silence`: why it cannot
                    be read now
    node-<k>.telemetry.json   what it and its ranks used, the newest samples
    node-<k>.lock   held by the process that follows that pod: one at a time
    node-<k>.log    what belongs to no rank: an interpreter that could not start the runner

Every line says which rank printed it and at which byte of its output (see `fermi.runner.pod`), so the length of a file
is the position from which that rank continues: a stream may break, this process may be killed, lines may come twice,
and the file is the same. Timestamps only say from where to ask.
"""

import fcntl
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fermi.engines import runner_reports
from fermi.engines.carried_logs import AttemptFiles, NodeFiles
from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient
from fermi.engines.kubernetes.gang import FINISHED_PHASES, Gang, Object, get_container_state, get_phase
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import RankProgress
from fermi.runner.run_names import parse_run_name

log = logging.getLogger(__name__)

STREAM_TIMEOUT_SECONDS = 4 * 3600.0  # as long as a kubelet keeps a quiet stream open
PAUSE_SECONDS = (0.2, 5.0)
MAX_PAUSE_SECONDS = 300.0
"""Longest pause between two requests to a node that does not answer for its pods; the first ones come soon, it may just
restart. An event of a pod ends the pause: its kubelet, which reports them, is back."""
MAX_UNREPORTED_FAILURES = 5  # failures in a row, which are two or three seconds
GIVE_UP_SECONDS = 60.0
"""How long after a pod's end its log is requested while the node does not answer."""
SAVE_SECONDS = 5.0
_LINE = re.compile(rb"(\d{1,7})([:+])(\d{1,15}):(.*)", re.DOTALL)
MAX_FILLED_BYTES, MAX_MISSING_BYTES = 1 << 20, 1 << 36
"""Missing bytes are written as blanks, more than `MAX_FILLED_BYTES` as a hole; a line that skips more than this is
refused."""


class LogSink(NodeFiles):
    """Writes one pod's lines to the files of its ranks. A line that its runner cannot have written belongs to no
    rank."""

    def __init__(self, files: AttemptFiles, node_rank: int, ranks: range) -> None:
        super().__init__(files, node_rank)
        self._ranks = ranks
        self._ends: dict[int, int] = {}
        self._saved = time.monotonic()

    def write_lines(self, lines: Iterable[bytes]) -> None:
        """Write lines as the API sends them: `2026-11-21T08:00:00.123456789Z text`."""
        pending: dict[int, list[bytes | int]] = {}
        said = False
        for line in lines:
            stamp, _, text = line.partition(b" ")
            if not stamp:
                continue
            if (found := _LINE.fullmatch(text)) and self._is_next(rank := int(found[1]), begin := int(found[3])):
                self._add(pending, rank, begin, found[4] + (b"\n" if found[2] == b":" else b""))
            elif text.startswith(b"@{"):
                told = runner_reports.parse_object(text[1:]) or {}
                if "pulse" in told:
                    self._hear(runner_reports.parse_pulses(told["pulse"]))
                elif "telemetry" in told:
                    self.save_telemetry(told["telemetry"])
                else:
                    self.report["ranks"], said = runner_reports.parse_rank_entries(told.get("ranks")), True
                    self.report["doing"] = runner_reports.parse_cause(told.get("doing"))
            elif stamp.decode(errors="replace") > self.report.get("plain", ""):
                with open(self.files.node(self.node_rank, "log"), "ab") as file:
                    file.write(text + b"\n")
                self.report["plain"] = stamp.decode(errors="replace")
            self.report["since"] = stamp.decode(errors="replace")
        for rank, pieces in pending.items():
            with open(self.files.rank(rank), "ab") as file:
                for piece in pieces:
                    file.write(piece) if isinstance(piece, bytes) else file.truncate(piece)
        if said or time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def save(self, **more: Any) -> None:
        """Write the report with these entries."""
        super().save(**more)
        self._saved = time.monotonic()

    def _hear(self, pulses: Mapping[int, RankProgress]) -> None:
        """Keep the ranks' progress with what is saved now and then: no reader waits for it."""
        self.report["pulse"] = [asdict(seen) for rank, seen in pulses.items() if rank in self._ranks]

    def _is_next(self, rank: int, begin: int) -> bool:
        """Return whether a rank of this node may have got as far as this position."""
        if rank in self._ranks and rank not in self._ends:
            path = self.files.rank(rank)
            self._ends[rank] = path.stat().st_size if path.exists() else 0
        return rank in self._ranks and begin - self._ends[rank] <= MAX_MISSING_BYTES

    def _add(self, pending: dict[int, list[bytes | int]], rank: int, begin: int, data: bytes) -> None:
        """Add a line to `pending` (data, or positions where the next data begins); drop what the file has. A gap (the
        node rotated a log that was not read in time) becomes as many bytes, the first of which say so: positions stay
        true."""
        end, pieces = self._ends[rank], pending.setdefault(rank, [])
        if begin > end:
            notice = f"[fermi: {begin - end} bytes are missing here: the node rotated its log]".encode()
            space = begin - end - 1
            pieces += [notice[:space].ljust(min(space, MAX_FILLED_BYTES)), begin - 1, b"\n"]
            end = begin
        if begin + len(data) > end:
            pieces.append(data[end - begin :])
            end = begin + len(data)
        self._ends[rank] = end


def truncate_timestamp(stamp: str) -> str:
    """Return a node's timestamp, which has nanoseconds and its own time zone, as whole seconds of UTC."""
    at = datetime.fromisoformat(re.sub(r"\.\d+", "", stamp))
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodEvents:
    """Whether the watch has reported a change of a pod since its follower last asked."""

    def __init__(self, pod: Object) -> None:
        self.news, self._version = threading.Event(), pod["metadata"]["resourceVersion"]

    def update(self, pod: Object) -> None:
        """Set the event where the pod is another version."""
        if pod["metadata"]["resourceVersion"] != self._version:
            self._version = pod["metadata"]["resourceVersion"]
            self.news.set()


class LogFollowers:
    """Followers of pods' logs in this process. `look` returns a pod as it is now, None when it is gone."""

    def __init__(self, client: KubernetesClient, data_dir: Path, look: Callable[[str, str], Object | None]) -> None:
        self._client, self._data_dir, self._look = client, data_dir, look
        self._lock = threading.Lock()
        self._active: dict[str, PodEvents] = {}
        self._streams: dict[str, Any] = {}
        self._stopped = threading.Event()

    def ensure(self, gang: Gang) -> None:
        """Follow every pod of an attempt that has started, unless another process does or its log has been read to its
        end."""
        for pod in gang.pods.values():
            if get_phase(pod) in ("Running", *FINISHED_PHASES) or get_container_state(pod).get("terminated"):
                self._follow(gang.name, pod)

    def stop(self) -> None:
        """Stop all followers; `ensure` starts new ones."""
        with self._lock:
            self._stopped.set()
            self._stopped = threading.Event()
            for heard in self._active.values():
                heard.news.set()
        for stream in list(self._streams.values()):
            stream.close()

    def _follow(self, attempt: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        files, node_rank = AttemptFiles(self._data_dir, *parse_run_name(attempt)), names.get_node_rank(pod)
        with self._lock:
            stopped = self._stopped
            if uid in self._active:
                self._active[uid].update(pod)
                return
            if files.report(node_rank).get("drained"):
                return
            files.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(files.node(node_rank, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return
            heard = self._active[uid] = PodEvents(pod)
        name = pod["metadata"]["name"]
        threading.Thread(
            target=self._run,
            args=(attempt, name, uid, LogSink(files, node_rank, names.get_ranks(pod)), lock, stopped, heard.news),
            name=f"log-{name}",
            daemon=True,
        ).start()

    def _run(
        self, attempt: str, name: str, uid: str, sink: LogSink, lock: int, stopped: threading.Event,
        news: threading.Event,
    ) -> None:  # fmt: skip
        pause, over_since, silent = PAUSE_SECONDS[0], None, 0
        try:
            while not stopped.is_set():
                news.clear()
                pod = self._look(attempt, name)
                over = pod is None or get_phase(pod) in FINISHED_PHASES
                over_since = (over_since or time.monotonic()) if over else None
                before = sink.report.get("since")
                try:
                    self._read(name, uid, sink, stopped, follow=not over)
                    answered, silent = True, 0
                except KubernetesApiError as error:
                    answered = error.status in (400, 404)  # gone, or its container never started
                    silent = 0 if answered else silent + 1
                    if silent == MAX_UNREPORTED_FAILURES:
                        sink.save_silence(error.message)
                if over and (answered or time.monotonic() - (over_since or 0) > GIVE_UP_SECONDS):
                    sink.save(drained=True)
                    return
                longest = MAX_PAUSE_SECONDS if silent else PAUSE_SECONDS[1]
                pause = PAUSE_SECONDS[0] if sink.report.get("since") != before else min(pause * 1.5, longest)
                if news.wait(PAUSE_SECONDS[1] if over and silent else PAUSE_SECONDS[0] if over else pause):
                    pause = PAUSE_SECONDS[0]
        except Exception:  # the next `ensure` starts again
            log.exception("the log of %s could not be stored", name)
        finally:
            with self._lock:
                self._active.pop(uid, None)
                self._streams.pop(uid, None)
                os.close(lock)

    def _read(self, name: str, uid: str, sink: LogSink, stopped: threading.Event, *, follow: bool) -> None:
        query: dict[str, Any] = {"container": names.CONTAINER, "timestamps": "true"}
        if follow:
            query["follow"] = "true"
        if since := sink.report.get("since"):
            query["sinceTime"] = truncate_timestamp(since)  # what comes twice is dropped by its offset
        stream = self._client.stream(
            self._client.path("Pod", name, below="log"), query=query, timeout=STREAM_TIMEOUT_SECONDS, accept="*/*"
        )
        sink.save_silence("")
        self._streams[uid] = stream
        if stopped.is_set():
            stream.close()
        try:
            for lines in stream.batches():
                sink.write_lines(lines)
        except BackendError:
            if not stopped.is_set():
                raise
        finally:
            sink.save()
