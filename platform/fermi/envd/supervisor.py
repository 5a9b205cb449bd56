"""Lifecycle of one run: from its lock to its last process. Its status file has the form that `fermi.runner.status`
reads: the daemon is its runner, the sessions of its processes are its ranks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fermi.envd.children import Children, build_mark
from fermi.envd.memory_holders import MemoryHolders
from fermi.envd.service import ServiceSupervisor
from fermi.runner import files, log_rotation, processes
from fermi.runner.bounds import Bounds
from fermi.runner.disk_usage import DiskMonitor

ACTIVITY_POLL_SECONDS = 5.0
BOUNDS_POLL_SECONDS = 0.5
STOP_POLL_SECONDS = 0.5
MAX_TERMINATION_BYTES = 4096
SPARE_BYTES = 64 << 20
"""What an environment may still write if it has more than its size already: clearing it up starts processes, which
write."""
DISK_CAUSE_CODES = {
    "DISK_BOUND_REACHED": "ENVIRONMENT_OVER_ITS_SIZE",
    "DISK_RESERVE_REACHED": "ENVIRONMENT_FILLED_THE_DISK",
    "DISK_WITHOUT_ROOM": "ENVIRONMENT_WITHOUT_ROOM",
}
"""Codes for tasks, and for environments."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class EnvironmentDaemon:
    """The daemon of one run. `token`: required of each client."""

    def __init__(
        self, spec: dict[str, Any], paths: files.RunnerPaths, variables: Mapping[str, str], token: str
    ) -> None:
        self.spec, self.paths, self.token = spec, paths, token
        self.status = files.build_first_status(spec["name"], 0, "starting")
        self.status["runner"] = {"pid": os.getpid(), "start_time": processes.read_start_time(os.getpid())}
        self.at: float | None = None  # unix seconds of the user's last activity
        self.connections = 0
        self.kernels: list[dict[str, Any]] = []
        self.holders: list[dict[str, Any]] = []
        self.ending = asyncio.Event()
        self._stop: dict[str, Any] | None = None
        self._log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._logged = 0  # since the log was trimmed
        gpus = spec["env"].get("CUDA_VISIBLE_DEVICES")
        self.held = MemoryHolders(gpus)
        given = {**spec["env"], **variables, **build_mark(paths.folder)}
        bounds = spec.get("bounds")
        self.bounds = Bounds(bounds, spec["name"], dict) if bounds else None
        self.disk_use = build_disk_monitor(spec, paths)
        self.passed: dict[str, Any] | None = None  # why the disk ends the run
        limit = self.bounds.limit_process if self.bounds else None
        self.children = Children(_build_sandboxes(spec), given, self.save, limit)
        self.service = ServiceSupervisor(spec, self.children, self.log, self.save)

    async def live(self, doors: Iterable[Callable[[], Awaitable[asyncio.Server]]]) -> None:
        """Run until a stop request, then end all processes. `doors`: start the servers."""
        loop = asyncio.get_running_loop()
        self.children.listen()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.ending.set)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.save()
        await self.service.set_interpreter(self.spec["python"])  # callers wait: it is theirs, too
        servers = [await door() for door in doors]
        if self.disk_use:
            self.disk_use.start()
        if not self.spec["lazy"]:
            self.service.want()
        tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._keep_bounds())]
        while not self.ending.is_set() and not self._over():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), STOP_POLL_SECONDS)
        for server in servers:
            server.close()
        for task in tasks:
            task.cancel()
        await self.service.stop(self.grace_seconds())
        await self.children.end_all()
        self._close()

    def _close(self) -> None:
        for confinement in self.children.confinements.values():
            confinement.close()
        self._leave()
        self._say_why()
        if self.disk_use:
            self.disk_use.close()
        if self.bounds:
            self.bounds.close()

    def _leave(self) -> None:
        """Write the end. A run that was ended by a signal alone was not stopped by the platform: a lazy one will start
        again on demand, and another one is lost."""
        asked = self._stop or files.read_json(self.paths.stop)
        if not asked and self.passed:
            self.service.cause = self.passed
            self.save("exited")
            return
        if not asked and self.spec["lazy"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.paths.status)
            return
        if not asked and self.service.cause is None:
            self.service.cause = {"code": "KEEPER_LOST", "params": {}}
        elif asked:
            self.service.cause = None
        self.save("exited")

    @property
    def failed(self) -> bool:
        """Whether the run ended because its service could not go on, or because of its disk."""
        return self.passed is not None or (self.service.state == "failed" and self.service.cause is not None)

    def _say_why(self) -> None:
        """Write the cause as JSON for the container's termination message."""
        path = self.spec.get("termination_message")
        if path and self.failed:
            with contextlib.suppress(OSError), open(path, "wb") as file:
                file.write(build_termination_message(self.service.cause or {}))

    def _over(self) -> bool:
        """Return True if a stop was requested in the file, or if the service was given up and is not tried again."""
        self._stop = files.read_json(self.paths.stop)
        return self._stop is not None or (self.service.state == "failed" and not self.spec["lazy"])

    def grace_seconds(self) -> float:
        """Return how long the service may take to end."""
        return float((self._stop or files.read_json(self.paths.stop) or self.spec)["grace_seconds"])

    def used(self) -> None:
        """Record a use of the environment."""
        self.at = time.time()

    def log(self, data: bytes) -> None:
        """Append to the run's log. A full disk is no error."""
        with contextlib.suppress(OSError):
            self._logged += os.write(self._log, data)
            if self._logged >= log_rotation.STEP_BYTES:
                self._logged = 0
                log_rotation.trim_log(self._log)

    async def end_kernel(self, kernel: str) -> bool:
        """End a Jupyter kernel, and return whether that was done."""
        jupyter = self.service.jupyter
        if jupyter is None or self.service.state != "up" or not await jupyter.end_kernel(kernel):
            return False
        await self.update()
        return True

    # --- what is told ---

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # what cannot be looked at ends nothing
                await self.update()
            await asyncio.sleep(ACTIVITY_POLL_SECONDS)

    async def _keep_bounds(self) -> None:
        """Kill what the environment runs if it exceeds its limits; its service starts again. Because of its disk the
        run ends: the same process would write again, and the cause tells the user what to remove."""
        while self.bounds:
            if self.disk_use and self.disk_use.found and not self.passed:
                processes.kill_descendants()
                self.children.reap()
                self.end_with_cause(self.disk_use.found)
            with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
                if found := self.bounds.check():
                    self.service.write_note(f"fermi: {found.pop('code')} {found}")
                    processes.kill_descendants()
                    self.children.reap()
            await asyncio.sleep(BOUNDS_POLL_SECONDS)

    def end_with_cause(self, cause: Mapping[str, Any]) -> None:
        """End the run because of a cause of `fermi.runner.disk_usage`."""
        params = {name: value for name, value in cause.items() if name not in ("code", "task")}
        self.passed = {"code": DISK_CAUSE_CODES[cause["code"]], "params": params}
        self.service.write_note(f"fermi: {self.passed['code']} {params}")
        self.ending.set()

    def refuse(self, cause: Mapping[str, Any]) -> None:
        """Write a cause and end at once, in place of `live`."""
        self.end_with_cause(cause)
        self._close()

    async def update(self) -> None:
        """Update kernels and memory holders."""
        now = time.time()
        service = self.service.child if self.service.kind != "custom" else None
        holders, kernel_pids = self.held.list_holders(
            self.children.pids(), time.monotonic(), service.pid if service else None
        )
        kernels = []
        if self.service.jupyter and self.service.state == "up":
            kernels = await self.service.jupyter.kernels()
        for kernel in kernels:
            pid = kernel_pids.get(kernel["id"])
            kernel.update(pid=pid, since=_compute_begin_time(pid, now))
            moment = now if kernel["busy"] else kernel["busy_at"]
            if moment and (self.at is None or moment > self.at):
                self.at = moment
        self.kernels, self.holders = kernels, holders
        self.save()

    def activity(self) -> dict[str, Any]:
        """Return the activity of the run."""
        known = ("id", "name", "busy", "since", "busy_at", "pid")
        kernels = [{name: kernel.get(name) for name in known} for kernel in self.kernels]
        return {"at": self.at, "connections": self.connections, "kernels": kernels, "holders": self.holders}

    def doors(self) -> list[dict[str, Any]]:
        """Return the service and the declared ports."""
        own = [] if self.service.kind == "custom" else [{"name": self.service.kind, "port": None}]
        return own + [dict(port) for port in self.spec["ports"]]

    def build_status(self) -> dict[str, Any]:
        """Return the run's own part of the status."""
        service = self.service
        return {
            "service": {"state": service.state, "restarts": service.restarts},
            "doing": service.doing, "cause": service.cause, "activity": self.activity(), "at": time.time(),
        }  # fmt: skip

    def save(self, state: str | None = None) -> None:
        """Write the status file. If the disk is full, the next call writes it."""
        ready = self.spec["lazy"] or self.service.state == "up"
        said = state or ("running" if ready else "starting")
        self.status.update(state=said, ranks=self.children.leaders(), **self.build_status())
        with contextlib.suppress(OSError):
            files.write_json_atomically(self.paths.status, self.status, 0o600)


def build_disk_monitor(spec: Mapping[str, Any], paths: files.RunnerPaths) -> DiskMonitor | None:
    """Return the monitor of the environment's disk and the run's folder, if it has limits; else None."""
    if not (ordered := spec.get("bounds")):
        return None
    return DiskMonitor({**ordered, "spare": SPARE_BYTES}, spec["name"], [spec["workspace"], spec["home"], paths.folder])


def build_termination_message(cause: Mapping[str, Any]) -> bytes:
    """Return a cause as JSON of the size that Kubernetes keeps (kubernetes/kubernetes,
    pkg/kubelet/container/runtime.go, MaxContainerTerminationMessageLength). Output of a program is cut at its
    beginning."""
    params = dict(cause["params"])
    for allowed in (2000, 1000, 500, 100, 0):
        short = {name: value[-allowed:] if isinstance(value, str) else value for name, value in params.items()}
        said = json.dumps({"cause": {**cause, "params": short}}, ensure_ascii=False).encode(errors="replace")
        if len(said) <= MAX_TERMINATION_BYTES:
            return said
    return json.dumps({"cause": {"code": cause["code"], "params": {}}}).encode()


def _build_sandboxes(spec: Mapping[str, Any]) -> dict[str, Any]:
    if not spec.get("confine"):
        return {}
    from fermi.runner.sandbox import Sandbox

    made = {
        "service": Sandbox(spec["confine"], spec["name"], os.environ),
        "preparing": Sandbox(spec["preparing"], spec["name"], os.environ),
    }
    for gap in made["service"].gaps:
        print(f"fermi: this machine cannot keep the environment from all that is not its own: {gap}", file=sys.stderr)
    return made


def _compute_begin_time(pid: int | None, now: float) -> float | None:
    began = processes.read_start_time(pid) if pid else None
    if began is None:
        return None
    return now - (time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK"))
