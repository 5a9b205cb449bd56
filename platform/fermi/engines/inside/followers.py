"""One stream per environment, held by the process that watches the cluster: it carries output and reports of attempts
inside into the files of `carried_logs`, and requests to end.

    node-<k>.json     the node runner's last report (`status`) and its ranks' progress (`pulse`); `silence`: why
                      nothing is received now; `gone`: what became of the container in which it ran
    files-<k>.json    which files its ranks have written, where these are downloaded (`download`)
    node-<k>.lock     held by the process that follows the node: one at a time

The length of a rank's file is the position from which that rank's output continues: a stream may be cut, this process
may be killed, and the file is the same. While nothing changes nothing is requested: the stream stays open, and a
message every ten seconds shows that it works.

A node counts as over (`drained`) once its files are here, too: they are requested piece by piece, after other messages.
"""

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fermi.engines import runner_reports
from fermi.engines.carried_logs import AttemptFiles, NodeFiles
from fermi.engines.inside.download import NodeDownload, TransferLimits
from fermi.engines.inside.session import InsideSession
from fermi.inside import protocol
from fermi.jobs.errors import BackendError
from fermi.runner.files import PulseFile
from fermi.runner.run_names import parse_run_name

log = logging.getLogger(__name__)

SILENT_SECONDS = 3 * protocol.ALIVE_SECONDS
"""Without a message for so long a stream is closed, and another is opened."""
PAUSE_SECONDS = (0.2, 30.0)
"""Between two attempts to open a stream, first and longest; the first come soon, for an API server may just restart."""
REPORT_AFTER_SECONDS = 5.0
END_POLL_SECONDS = (0.3, 5.0)
"""How often, and for how long, the engine is asked what became of a container when another life of it answers: a
kubelet has started it again about a second before it reports that (Kubernetes 1.36)."""
MAX_FILLED_BYTES, MAX_MISSING_BYTES = 1 << 20, 1 << 36
STATES = ("absent", "starting", "running", "exited", "lost")


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Request to end an attempt: `kill_at` in unix seconds."""

    kill_at: float
    still_seconds: float | None = None

    @property
    def grace(self) -> float:
        """Seconds that are left until the ranks are killed."""
        return max(0.0, self.kill_at - time.time())


@dataclass(slots=True)
class NodeInEnvironment:
    """Node of an attempt inside of an environment. `first`: its first rank. `find_end`: returns what became of the
    container in which it was started, as {"code", "params"}, or None: as far as the engine knows it runs; raises
    BackendError. `brings`: limits of the ranks' files that are downloaded; None: they are on the platform's disk."""

    attempt: str
    node_rank: int
    first: int
    processes: int
    find_end: Callable[[], Mapping[str, Any] | None]
    end: StopRequest | None = None
    brings: TransferLimits | None = None

    @property
    def ranks(self) -> range:
        """Ranks of the node."""
        return range(self.first, self.first + self.processes)


@dataclass(frozen=True, slots=True)
class EnvironmentEntry:
    """Environment that can be entered. `key`: the same for all attempts that run in it. `enter`: opens a session;
    raises BackendError."""

    key: str
    enter: Callable[[], InsideSession]


class NodeSink(NodeFiles):
    """Files of a node, while its lock is held."""

    def __init__(self, data_dir: Path, place: NodeInEnvironment, lock: int) -> None:
        super().__init__(AttemptFiles(data_dir, *parse_run_name(place.attempt)), place.node_rank)
        self.place, self._lock = place, lock
        self._pulse = PulseFile(str(self.files.node(place.node_rank, "pulse.json")))
        self._told_all = False
        self.arrival = place.brings and NodeDownload(data_dir, place.attempt, place.node_rank, place.brings)

    @property
    def drained(self) -> bool:
        """Whether nothing more is to come of the node."""
        return bool(self.report.get("drained"))

    def mark_drained(self) -> bool:
        """Mark the node as drained once all its output and files are here; return whether that changed."""
        if self.drained or not self._told_all or (self.arrival and not self.arrival.is_done):
            return False
        self.save(drained=True)
        return True

    def cut(self) -> None:
        """Forget what was expected of the stream, which has ended."""
        self._told_all = False
        if self.arrival:
            self.arrival.cut()

    def ends(self) -> dict[int, int]:
        """Return how many bytes of each rank's output are here."""
        paths = {rank: self.files.rank(rank) for rank in self.place.ranks}
        return {rank: path.stat().st_size if path.exists() else 0 for rank, path in paths.items()}

    def is_restarted(self, status: Any) -> bool:
        """Return whether a node's status shows that its container is another one now."""
        if not isinstance(status, dict):
            return False
        lost = status.get("state") == "absent" and self.report.get("state") not in (None, "absent")
        return status.get("restarted") is True or lost

    def save_status(self, status: Any) -> bool:
        """Save a node's status; return whether it changed. What does not have the shape that `fermi.inside` writes
        counts as not reported."""
        if not isinstance(status, dict) or status.get("state") not in STATES:
            return False
        ranks = [
            one for one in runner_reports.parse_rank_entries(status.get("ranks")) if one["rank"] in self.place.ranks
        ]
        asked_at = status.get("asked_at")
        found = {
            "state": status["state"], "ranks": ranks, "left": status.get("left") is not False,
            "cause": runner_reports.parse_cause(status.get("cause")),
            "doing": runner_reports.parse_cause(status.get("doing")),
            "asked_at": asked_at if runner_reports.is_timestamp(asked_at) else None,
            "forbidden": status.get("forbidden") is True, "restarted": status.get("restarted") is True,
        }  # fmt: skip
        changed = any(self.report.get(name) != value for name, value in found.items())
        self.save(**found)
        self._told_all = status.get("drained") is True
        return changed

    def write_output(self, rank: Any, at: Any, data: bytes) -> None:
        """Append output of a rank; what the file has already is dropped. Missing bytes before it are filled with as
        many bytes that say so."""
        if not isinstance(rank, int) or rank not in self.place.ranks or not isinstance(at, int):
            return
        path = self.files.rank(rank)
        end = path.stat().st_size if path.exists() else 0
        if not 0 <= at <= end + MAX_MISSING_BYTES:
            return
        with open(path, "ab") as file:
            if at > end:
                said = f"[fermi: {at - end} bytes are missing here: they were not kept]".encode()
                file.write(said[: at - end - 1].ljust(min(at - end - 1, MAX_FILLED_BYTES)))
                file.truncate(at - 1)
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
                end = at
            file.write(data[end - at :])

    def save_pulse(self, pulse: Any) -> None:
        """Save the ranks' progress in a file of its own: readers of an attempt first check whether its report has
        changed."""
        seen = runner_reports.parse_pulses(pulse)
        self._pulse.save([asdict(one) for rank, one in seen.items() if rank in self.place.ranks])

    def close(self) -> None:
        """Release the node's lock."""
        self.cut()
        os.close(self._lock)


@dataclass(slots=True)
class _EnvironmentStream:
    """Stream to one environment and the nodes that it serves."""

    environment: EnvironmentEntry
    sinks: dict[str, NodeSink] = field(default_factory=dict)
    session: InsideSession | None = None
    wake: threading.Event = field(default_factory=threading.Event)
    sent_stops: dict[str, StopRequest] = field(default_factory=dict)
    """By attempt: what its environment was asked to do on this session."""
    file_requests: dict[int, str] = field(default_factory=dict)
    """By the number of a request for a piece of a file: its attempt."""


class EnvironmentFollowers:
    """Streams of this process. `on_change` is called with the name of an attempt of which something changed."""

    def __init__(self, data_dir: Path, on_change: Callable[[str], None]) -> None:
        self._data_dir, self._on_change = data_dir, on_change
        self._lock = threading.Lock()
        self._streams: dict[str, _EnvironmentStream] = {}
        self._stopped = threading.Event()
        self._greeting: threading.Thread | None = None

    def ensure(self, environment: EnvironmentEntry, node: NodeInEnvironment) -> None:
        """Follow the node, unless another process does or it is over; ask it to end where it is to."""
        with self._lock:
            stream = self._streams.get(environment.key)
            known = stream and stream.sinks.get(node.attempt)
            if not known:
                if (sink := self._take(node)) is None:
                    return
                if stream is None:
                    stream = self._streams[environment.key] = _EnvironmentStream(environment)
                    stream.sinks[node.attempt] = sink
                    name = f"inside-{environment.key}"
                    args = (stream, self._stopped)
                    threading.Thread(target=self._run, args=args, name=name, daemon=True).start()
                    if self._greeting is None:
                        self._greeting = threading.Thread(target=self._greet, args=(self._stopped,), daemon=True)
                        self._greeting.start()
                    return
                stream.sinks[node.attempt] = sink
            else:
                known.place = node
            assert stream
            session = stream.session
        stream.wake.set()
        if session:
            with suppress(OSError):
                self._ask(stream, session, node.attempt)

    def drop_unknown(self, is_known: Callable[[str], bool]) -> None:
        """Stop following attempts that are not known. One that was deleted may have been followed once more before that
        was known here; its environment knows nothing of it, and would never report its end."""
        ended: list[InsideSession] = []
        with self._lock:
            for stream in self._streams.values():
                for name in [one for one in stream.sinks if not is_known(one)]:
                    stream.sinks.pop(name).close()
                if not stream.sinks and stream.session:
                    ended.append(stream.session)
                    stream.wake.set()
        for session in ended:
            session.close()

    def stop(self) -> None:
        """Close all streams and release all nodes."""
        with self._lock:
            self._stopped.set()
            self._stopped, self._greeting = threading.Event(), None
            streams = list(self._streams.values())
            self._streams = {}
        for stream in streams:
            stream.wake.set()
            if session := stream.session:
                session.close()

    def _greet(self, stopped: threading.Event) -> None:
        """Send a sign of life on all streams, every few seconds."""
        while not stopped.wait(protocol.ALIVE_SECONDS):
            with self._lock:
                sessions = [stream.session for stream in self._streams.values()]
            for session in sessions:
                with suppress(OSError):
                    if session:
                        session.greet_again()

    def _take(self, node: NodeInEnvironment) -> NodeSink | None:
        """Return the node's files with its lock; None: it is drained, or another process follows it."""
        files = AttemptFiles(self._data_dir, *parse_run_name(node.attempt))
        if files.report(node.node_rank).get("drained"):
            return None
        files.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(files.node(node.node_rank, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return NodeSink(self._data_dir, node, lock)

    def _run(self, stream: _EnvironmentStream, stopped: threading.Event) -> None:
        pause, since = PAUSE_SECONDS[0], time.monotonic()
        try:
            while not stopped.is_set() and self._settle(stream):
                stream.wake.clear()
                began = time.monotonic()
                try:
                    self._listen(stream, stopped)
                    why = "the stream ended"
                except (BackendError, OSError) as error:
                    why = str(getattr(error, "params", {}).get("why") or error)
                    if isinstance(error, BackendError) and error.permanent:
                        self._give_up_unbegun(stream)
                except Exception as error:
                    log.exception("what came from %s could not be stored", stream.environment.key)
                    why = f"{type(error).__name__}: {error}"
                stream.session = None
                stream.sent_stops.clear()
                stream.file_requests.clear()
                for sink in list(stream.sinks.values()):
                    sink.cut()
                if stopped.is_set():
                    return
                if time.monotonic() - began > SILENT_SECONDS:
                    pause, since = PAUSE_SECONDS[0], time.monotonic()
                self._look(stream, why if time.monotonic() - since > REPORT_AFTER_SECONDS else "")
                stream.wake.wait(pause)
                pause = min(pause * 1.5, PAUSE_SECONDS[1])
        finally:
            with self._lock:
                if self._streams.get(stream.environment.key) is stream:
                    del self._streams[stream.environment.key]
                for sink in stream.sinks.values():
                    sink.close()

    def _settle(self, stream: _EnvironmentStream) -> bool:
        """Release nodes that are drained; return whether any is left to follow."""
        with self._lock:
            for name, sink in list(stream.sinks.items()):
                if sink.drained:
                    stream.sinks.pop(name).close()
            if not stream.sinks and self._streams.get(stream.environment.key) is stream:
                del self._streams[stream.environment.key]
            return bool(stream.sinks)

    def _give_up_unbegun(self, stream: _EnvironmentStream) -> None:
        """End attempts that are asked to end, where the environment cannot be entered at all and never reported them:
        nothing of them was started there."""
        for name, sink in list(stream.sinks.items()):
            if sink.place.end and not sink.report.get("state"):
                sink.save(forbidden=True, left=False, drained=True, silence="")
                self._on_change(name)

    def _look(self, stream: _EnvironmentStream, why: str) -> None:
        """Save why nothing is received, and ask the engine what became of the containers."""
        for name, sink in list(stream.sinks.items()):
            changed = sink.save_silence(why) if why else False
            changed |= self._fate(sink)
            if changed:
                self._on_change(name)

    @staticmethod
    def _fate(sink: NodeSink) -> bool:
        """Return whether the node's container is known to be gone; then nothing more is to come."""
        try:
            fate = sink.place.find_end()
        except BackendError:
            return False
        if fate is None:
            return False
        sink.save(gone=dict(fate), left=False, drained=True, silence="")
        if sink.arrival:
            sink.arrival.discard()
        return True

    def _await_fate(self, sink: NodeSink) -> bool:
        """Ask for what became of the container until the engine knows, for a few seconds."""
        pause, longest = END_POLL_SECONDS
        until, stopped = time.monotonic() + longest, self._stopped
        while not self._fate(sink):
            if time.monotonic() > until or stopped.wait(pause):
                return False
        return True

    def _listen(self, stream: _EnvironmentStream, stopped: threading.Event) -> None:
        with stream.environment.enter() as session:
            if stopped.is_set():
                return
            with self._lock:
                stream.session = session
                names = list(stream.sinks)
            for name in names:
                self._ask(stream, session, name)
            for said, data in session.messages(SILENT_SECONDS):
                self._take_in(stream, session, said, data)
                if not self._settle(stream):
                    return

    def _ask(self, stream: _EnvironmentStream, session: InsideSession, name: str) -> None:
        """Ask to follow an attempt, and to end it where it is to; each once on a session. Raise OSError."""
        sink = stream.sinks.get(name)
        if sink is None:
            return
        place = sink.place
        if name not in stream.sent_stops:
            stream.sent_stops[name] = StopRequest(float("inf"))
            ends = {str(rank): end for rank, end in sink.ends().items()}
            session.send("follow", of=name, node=place.node_rank, ranks=ends, files=bool(sink.arrival))
        if place.end and place.end.kill_at < stream.sent_stops[name].kill_at:
            stream.sent_stops[name] = place.end
            session.send("cancel", of=name, node=place.node_rank, grace=place.end.grace, still=place.end.still_seconds)

    def _take_in(
        self, stream: _EnvironmentStream, session: InsideSession, message: Mapping[str, Any], data: bytes
    ) -> None:
        number = message.get("id")
        name = stream.file_requests.pop(number, "") if isinstance(number, int) else str(message.get("of"))
        sink = stream.sinks.get(name)
        if sink is None:
            return
        changed = sink.save_silence("")
        if sink.arrival and "id" in message:
            changed |= sink.arrival.answer(number, message, data)
        elif sink.arrival and "files" in message:
            changed |= sink.arrival.process_list(message)
        elif "log" in message:
            sink.write_output(message["log"], message.get("at"), data)
        elif "pulse" in message:
            sink.save_pulse(message["pulse"])
        elif "telemetry" in message:
            sink.save_telemetry(message["telemetry"])
        elif "status" in message:
            if sink.is_restarted(message["status"]):
                changed |= self._await_fate(sink)
            if not sink.drained:
                changed |= sink.save_status(message["status"])
            if sink.report.get("state") == "absent":
                changed |= self._fate(sink)
        if sink.arrival and ("id" in message or "files" in message):
            self._ask_for_files(stream, session, sink)
        if sink.mark_drained() or changed:
            self._on_change(sink.place.attempt)

    @staticmethod
    def _ask_for_files(stream: _EnvironmentStream, session: InsideSession, sink: NodeSink) -> None:
        """Request pieces of files. Raise OSError."""

        def tell(what: str, **request: Any) -> int:
            number = session.send(what, **request)
            stream.file_requests[number] = sink.place.attempt
            return number

        if sink.arrival:
            sink.arrival.request_files(tell)
