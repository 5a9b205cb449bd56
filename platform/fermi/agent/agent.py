"""The agent: one process that drives the workers of its node, in threads that share nothing but `Agent`.

    supervise   checks the processes, moves each worker one step towards its desired state    (the main thread)
    listen      a heartbeat that the server holds until the desired state changes: the long poll
    report      a heartbeat at once when a process has changed
    ship        logs
    host        managed environments of this host (see `environments`)
    engines     whether there is a container engine for them
    clean       caches of libraries, every half hour

If the server is unreachable only its answers are missing: training goes on, ends, and is reported later.
"""

import logging
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fermi.agent import host_facts, library_caches
from fermi.agent.environments import EnvironmentRunner
from fermi.agent.errors import AgentError, convert_refusal, format_problems
from fermi.agent.host_facts import BusyPorts, ContainerEngineLookup
from fermi.agent.log_upload import ship_logs
from fermi.agent.runs import HostContext, RankRun
from fermi.agent.sandbox import HostSandbox
from fermi.agent.server import WorkerApi
from fermi.agent.settings import Settings
from fermi.agent.state import StateDirectory
from fermi.agent.streams_dial import ReverseTunnels
from fermi.agent.usage import NO_USAGE, UsageSampler
from fermi.agent.worker import Worker, end_siblings
from fermi.client import ConflictError, FermiError, RequestRefusedError, ThrottledError, UnexpectedAnswerError
from fermi.engines.local.launcher import Launcher, get_default_python
from fermi.jobs.errors import BackendError
from fermi.planning import plugins
from fermi.runner import programs

log = logging.getLogger(__name__)

STEP_SECONDS = 0.1, 1.0  # while something runs, else
SHIP_SECONDS = 0.5
RETRY_SECONDS = 0.5, 5.0
USAGE_SECONDS = 5.0
IDLE_SECONDS = 60.0
CACHE_SECONDS = 1800.0
RELAUNCH_SECONDS = 3.0
"""How long after a launch a rank without a trace is launched again."""


class Agent:
    """Drives the workers of a node. Raises AgentError for invalid settings, if the folder or a worker is in use, or, in
    `run`, if the platform refuses it for good."""

    def __init__(self, settings: Settings, config: str | None = None, lang: str = "en") -> None:
        """Lock the folder and load what was started before. `config`: the file that settings came from, if any; `lang`:
        of the platform's messages."""
        self.settings = settings
        self.node, numbers = settings.workers()
        gpus = host_facts.choose_gpus(settings, numbers)
        if not settings.server:
            raise AgentError("WORKER_SERVER_REQUIRED")
        self.server = WorkerApi(settings.server, lang)
        self.token = settings.join_token()
        self.folder = StateDirectory(settings.state_folder(self.node), list(gpus))
        state, python = self.folder.path, settings.python or get_default_python()
        workspace = Path(settings.workspace).expanduser().resolve() if settings.workspace else state / "workspace"
        private = [Path(path) for path in (config, settings.token_file) if path]
        programs.set_trusted_path([str(state), str(workspace), *settings.writes])
        self.confining = HostSandbox.from_paths(
            state, workspace, python, private, enabled=settings.confine,
            reads=settings.reads, writes=settings.writes,
        )  # fmt: skip
        self.host = HostContext(state, workspace, python, self.confining, settings.warm)
        self.address = host_facts.find_address(settings, self.server.host, self.server.port)
        self.workers = [Worker(name, gpu, self.folder.worker(name), self.host) for name, gpu in gpus.items()]
        self.by_id = {worker.id: worker for worker in self.workers}
        self.secrets = {worker.id: self.folder.secret(worker.id) for worker in self.workers}
        self.incarnation = str(uuid.uuid4())
        self.interval = 5.0
        self.launcher = Launcher(self.host.python, warm=settings.warm)
        self._lock = threading.RLock()  # of the workers' state
        self._registering = threading.Lock()
        self._sequence = 0
        self._launched: dict[str, float] = {}
        self._usage = {worker.id: dict(NO_USAGE) for worker in self.workers}
        self._used: dict[str, dict[str, Any]] = {}  # as it is told, by worker
        self._used_told: dict[str, float] = {}  # up to which moment
        self._said: dict[str, str] = {}
        self._told: dict[str, Any] = {}  # facts of the host
        self._ending = threading.Event()
        self._news = threading.Event()  # something is wanted that was not
        self._changed = threading.Event()  # a process is not as it was last reported
        self._ship_now = threading.Event()  # a process ended: the rest of its log is there
        self._reported: dict[str, Any] = {}  # by worker
        kept = {
            "data_dir": str(state / "hosted"), "python": python,
            "isolation": "landlock" if settings.confine else "off",
            "private": [str(state / "workers"), *map(str, private)], "containers": settings.containers,
            "task_reads": list(settings.reads), "task_writes": list(settings.writes),
        }  # fmt: skip
        self.engines = ContainerEngineLookup(state / "hosted" / "containers", enabled=settings.containers)
        self.hosted = EnvironmentRunner(kept, self.server, self.secrets.__getitem__, self._changed.set, self._say)
        self.ways = ReverseTunnels(self.server, self.secrets.__getitem__, self._dial, self._say)

    def run(self) -> None:
        """Run until `stop`. Training goes on afterwards."""
        if self.engines.wanted:
            threading.Thread(target=self._guarded, args=(self._engines,), name="engines", daemon=True).start()
        self._register()
        loops = (self._listen, self._report, self._ship, self._measure, self._host, self._clean)
        others = [
            threading.Thread(target=self._guarded, args=(loop,), name=loop.__name__, daemon=True) for loop in loops
        ]
        for thread in others:
            thread.start()
        if self.address.startswith("127."):
            self._say("address", "", f"other hosts cannot reach {self.address}: several nodes need --address")
        if self.settings.warm:
            self.launcher.stand_by(plugins.get_framework(plugins.DEFAULT_FRAMEWORK).preload)
        while not self._ending.is_set():
            busy = self._supervise()
            self._news.wait(STEP_SECONDS[0] if busy else STEP_SECONDS[1])
            self._news.clear()
        self.launcher.close()

    def stop(self) -> None:
        """Make `run` return."""
        for event in (self._ending, self._news, self._changed, self._ship_now, self.hosted.news):
            event.set()

    def close(self) -> None:
        """Release the folder, so that another agent can drive these workers."""
        self.folder.close()

    # supervise

    def _supervise(self) -> bool:
        """Move each worker one step, and return True if something runs or can start."""
        with self._lock:
            for worker in self.workers:
                try:
                    worker.run_step()
                    self._say("disk", worker.id, "")
                except OSError as error:
                    self._say("disk", worker.id, f"{error.filename}: {error.strerror}; tried again")
                except (KeyError, TypeError, ValueError) as error:
                    self._say("order", worker.id, f"its order is not understood: {error!r}")
            end_siblings(self.workers)
            startable = [run for worker in self.workers for run in worker.startable()]
            incomplete = {worker.wanted_name for worker in self.workers if worker.wanted_name not in worker.runs}
            for name in {run.name for run in startable} - incomplete:
                self._launch(name, [run for run in startable if run.name == name])
            now = {worker.id: worker.news() for worker in self.workers}
            if now != self._reported:
                self._reported = now
                self._changed.set()
                self._ship_now.set()
            return any(not run.is_over for worker in self.workers for run in worker.runs.values()) or bool(startable)

    def _launch(self, name: str, runs: Sequence[RankRun]) -> None:
        """Start this host's ranks of an attempt once all of them are known: they are forked from one process. Start
        them again if one left no trace for a while."""
        now = time.monotonic()
        self._launched = {other: at for other, at in self._launched.items() if now - at < RELAUNCH_SECONDS}
        if self.launcher.is_busy(name):
            self._launched[name] = now
        if name in self._launched:
            return
        self._launched[name] = now
        try:
            specs, log = [run.spec_path for run in runs], runs[0].folder / "launch.log"
            self.launcher.launch(name, specs, runs[0].spec.get("preload", ()), log, runs[0].secrets)
        except BackendError as error:
            why = str(error.params.get("output") or error)
        except OSError as error:
            why = f"{self.host.python}: {error.strerror}"
        else:
            return
        for run in runs:
            run.record_failed_start(why)

    # listen, report

    def _listen(self) -> None:
        """Send heartbeats. A server that does not hold the request is queried once per interval all the same."""
        failures = 0
        while not self._ending.is_set():
            begun, known = time.monotonic(), self._wanted()
            if self._exchange(self.workers, wait=self.interval):
                failures = 0
                if self._wanted() == known:
                    self._pause(RETRY_SECONDS[0] if self._lacking() else begun + self.interval - time.monotonic())
            else:
                failures += 1
                self._pause(min(RETRY_SECONDS[1], RETRY_SECONDS[0] * 2**failures) * random.uniform(0.5, 1))

    def _report(self) -> None:
        failures = 0
        while not self._ending.is_set():
            self._changed.wait()
            self._changed.clear()
            if self._ending.is_set() or self._exchange(self.workers, wait=0):
                failures = 0
                continue
            failures += 1
            self._pause(min(RETRY_SECONDS[1], RETRY_SECONDS[0] * 2**failures))
            self._changed.set()

    def _exchange(self, workers: Sequence[Worker], wait: float) -> bool:
        """Send one heartbeat and apply its answer. Return False if there was none."""
        with self._lock:
            self._sequence += 1
            tokens = dict(self.secrets)
            said = [
                {"id": worker.id, "token": tokens[worker.id], "incarnation": self.incarnation,
                 "sequence": self._sequence, **worker.report(self._usage[worker.id]), "pulse": worker.pulse(),
                 **self._build_telemetry(worker.id), **self.hosted.report(worker.id)}
                for worker in workers
            ]  # fmt: skip
        asked_at = time.monotonic()
        try:
            answer = self.server.heartbeat(said, wait)
        except FermiError as error:
            self._say("server", "", f"no heartbeat: {error.message}")
            return False
        self._say("server", "", "")
        self._used_told |= {one["id"]: one["telemetry"]["at"] for one in said if "telemetry" in one}
        self.interval = min(60.0, max(0.2, float(answer.get("intervalSeconds") or self.interval)))
        refused = {}
        for item in answer["workers"]:
            if (worker := self.by_id.get(item.get("id"))) is None:
                continue
            problem = item.get("error")
            self._say("worker", worker.id, f"{problem['code']}: {problem['message']}" if problem else "")
            if problem:
                refused[worker.id] = tokens[worker.id]
                continue
            with self._lock:
                if worker.learn(item, asked_at, time.monotonic()):
                    self._news.set()
                if worker.desired and worker.desired.generation == item["generation"]:
                    self.hosted.learn(worker.id, item.get("hosted"))
                    self.ways.learn(worker.id, (item.get("hosted") or {}).get("channels") or ())
        for worker in workers:
            self._fetch(worker)
        if refused:
            self._register_again(refused)
        return not refused

    def _build_telemetry(self, worker: str) -> dict[str, Any]:
        used = self._used.get(worker)
        return {"telemetry": used} if used and used["at"] > self._used_told.get(worker, 0.0) else {}

    def _fetch(self, worker: Worker) -> None:
        with self._lock:
            if not worker.needs_order():
                return
        try:
            body = self.server.order(worker.id, self.secrets[worker.id])
        except FermiError as error:
            self._say("order", worker.id, f"its order cannot be read: {error.message}")
            return
        self._say("order", worker.id, "")
        with self._lock:
            worker.body = body
        self._news.set()

    def _wanted(self) -> list[object]:
        with self._lock:
            return [worker.desired for worker in self.workers]

    def _lacking(self) -> bool:
        with self._lock:
            return any(worker.needs_order() for worker in self.workers)

    # ship, measure

    def _ship(self) -> None:
        failures = 0
        while not self._ending.is_set():
            failure = None
            for worker in self.workers:
                with self._lock:
                    waiting = [run for run in worker.runs.values() if not run.shipped]
                token = self.secrets[worker.id]

                def append(name: str, offset: int, data: bytes, worker: Worker = worker, token: str = token) -> int:
                    return self.server.append(worker.id, token, f"logs/{name}", offset, data)

                if token:
                    failure = ship_logs(waiting, append) or failure
                if any(run.shipped for run in waiting):
                    self._news.set()
            self._say("logs", "", f"logs wait: {failure.message}" if failure else "")
            failures = failures + 1 if failure else 0
            self._ship_now.wait(min(RETRY_SECONDS[1], SHIP_SECONDS * 2**failures))
            self._ship_now.clear()

    def _measure(self) -> None:
        emulated = all(worker.gpu is None for worker in self.workers)
        sampler, taken = UsageSampler([str(self.host.workspace), str(self.host.state)], emulated=emulated), BusyPorts()
        while not self._ending.is_set():
            with self._lock:
                now = [(w.id, w.gpu, run.leader if (run := w.current()) and not run.is_over else None)
                       for w in self.workers]  # fmt: skip
            usage = sampler.sample(now)
            first, own = self.workers[0].id, {leader["pid"] for _, _, leader in now if leader}
            usage[first] = {**usage[first], "ports": taken.list_ports(own)}  # the host's: one of its workers says it
            with self._lock:
                self._usage, self._used = usage, sampler.told
            self._pause(min(USAGE_SECONDS, self.interval))

    def _dial(self, worker: str, run: str) -> socket.socket | None:
        """Return a stream into a managed environment of this host, or next to the rank of an attempt that this worker
        runs; None if there is neither."""
        if (stream := self.hosted.dial(run)) is not None:
            return stream
        with self._lock:
            there = self.by_id[worker].runs.get(run)
        return there.open_exec_stream() if there else None

    def _host(self) -> None:
        while not self._ending.is_set():
            busy = self.hosted.step()
            self.hosted.news.wait(STEP_SECONDS[1] if busy else IDLE_SECONDS)
            self.hosted.news.clear()

    def _clean(self) -> None:
        """Keep the projects' caches of libraries below their limit."""
        while not self._ending.is_set() and self.settings.cache_max_gb:
            library_caches.clean_caches(self.host.state, self.settings.cache_max_gb << 30, self._list_runs)
            self._pause(CACHE_SECONDS)
        self._ending.wait()

    def _list_runs(self) -> list[RankRun]:
        with self._lock:
            return [run for worker in self.workers for run in worker.runs.values()]

    def _engines(self) -> None:
        """Check for a container engine, and report changes since the registration; again later if the platform is
        unreachable."""
        while not self._ending.is_set():
            words = self.engines.find_engine()
            with self._registering:
                before = self._told
                if self.token and before and before.get("containers") != words:
                    self._told = {**before, "containers": words}
                    try:
                        self._ask_to_register()
                    except FermiError as error:
                        self._told = before
                        self._say("containers", "", f"not told yet: {error.message}")
            self._pause(IDLE_SECONDS)

    # register

    def _register(self) -> None:
        """Register once, unless this host's workers have their secrets already and the platform is unreachable. Raises
        AgentError if it is refused for good."""
        known = all(self.secrets.values())
        if not self.token and not known:
            raise AgentError("WORKER_TOKEN_REQUIRED")
        failures = 0
        while not self._ending.is_set() and self.token:
            try:
                self._ask_to_register()
                return
            except (RequestRefusedError, UnexpectedAnswerError) as error:
                if not known and not isinstance(error, ThrottledError):
                    raise convert_refusal(error, self.server.url) from error
                self._refused(error, self.workers)
            except FermiError as error:
                self._say("register", "", f"not registered yet: {error.message}")
            if known:
                return
            failures += 1
            self._pause(min(RETRY_SECONDS[1], RETRY_SECONDS[0] * 2**failures))

    def _refused(self, error: FermiError, workers: Sequence[Worker]) -> None:
        """Log a refused registration. Workers have their own tokens, so they go on, unless another host has them
        now."""
        self._say("register", "", f"not registered: {format_problems(error)}")
        if isinstance(error, ConflictError):
            with self._lock:
                for worker in workers:
                    worker.disown()
            self._news.set()

    def _register_again(self, refused: Mapping[str, str]) -> None:
        """Register workers whose tokens the platform does not know: they were deleted, or are driven elsewhere; unless
        another of our threads was faster, and they have new ones by now."""
        with self._registering:
            still = [self.by_id[worker] for worker, token in refused.items() if self.secrets[worker] == token]
            if not still or not self.token:
                return
            try:
                self._ask_to_register()
            except FermiError as error:
                self._refused(error, still)

    def _ask_to_register(self) -> None:
        self._told = self._told or host_facts.collect_facts(
            self.settings, self.folder.machine, self.address, self.host.python, str(self.host.workspace),
            self.engines.soon(),
        )  # fmt: skip
        workers = [{"id": worker.id, "gpu": worker.gpu} for worker in self.workers]
        body = {"workers": workers, "incarnation": self.incarnation, "facts": self._told}
        secrets = self.server.register(self.token, body)
        for worker, secret in secrets.items():
            self.folder.store_secret(worker, secret)
        with self._lock:
            self.secrets |= secrets
        self._say("register", "", f"registered at {self.server.url}: {', '.join(sorted(secrets))}")

    # all

    def _guarded(self, loop: Callable[[], None]) -> None:
        """Run a loop; after an unexpected error log it and go on, because training still has to be supervised."""
        while not self._ending.is_set():
            try:
                loop()
            except Exception:
                log.exception("%s failed", loop.__name__)
                self._pause(RETRY_SECONDS[1])

    def _pause(self, seconds: float) -> None:
        self._ending.wait(seconds)

    def _say(self, about: str, worker: str, text: str) -> None:
        """Log each state once, until it changes."""
        key = f"{about} {worker}"
        if not self._ending.is_set() and self._said.get(key, "") != text:
            self._said[key] = text
            where = f"{worker}: " if worker else ""
            log.info("%s%s", where, text or f"{about}: all is well again")
