"""The node runner: starts one process per rank on this host, follows them to their end, and writes down their state.

    python -m fermi.runner.node <spec.json> [-]     `-`: reads variables that are in no file from standard input (JSON)

It needs nothing but the standard library (Python 3.9 or later), keeps no connection, and outlives its parent. Its files
are those of `files.py`; for stop requests see `stop_requests.py`.

    starting ─▶ running ─▶ exited          `exited` is written last, when no process of the node is left

The spec:

    {"name": "task-x-1", "node_rank": 0, "command": ["python", "train.py"], "cwd": "/…", "env": {"MASTER_ADDR": "…"},
     "ranks": [{"rank": 0, "local_rank": 0, "env": {"RANK": "0"}, "log": "/…/0.log"}],
     "stop_signal": "SIGTERM", "grace_seconds": 30, "last_seconds": 300, "fork": true, "port": 29500, "confine": {…},
     "pulse": true, "pulse_seconds": 1, "hang_seconds": null, "measured": true, "code": {…}}

`pulse`: the ranks carry a probe and are watched (see `watch.py`): it fills `error`, `stalled` and `kill` of their
entries, and their pulses, every `pulse_seconds`. `hang_seconds`: after so long without progress they are examined.

`measured`: telemetry of the node and its ranks is collected (see `telemetry.py`), unless another process measures it.

`processes`: `node`: `command` starts the node's ranks itself . It is started once, as the first of `ranks`;
each process that turns out to be one of the others (`fermi.probe.inner_ranks`) is followed as that rank. All end with
the command, whose exit code is theirs.

`last_seconds`: a rank that has been completely idle for so long gets `still_since`.

`port`: where rank 0 will listen, if it is one of these and shares its addresses with others.

`fork`: the ranks may be forked from this process instead of executed, and so inherit the modules that it (see
`fork_server.py`) has imported. A forked rank then runs the script the way `python script.py` or `python -m module`
does. `imports`: why they are executed although a process with these modules stands by, for the log of the first rank.
`venv`: the virtual environment on top of this interpreter that `command` runs with (see `venv.py`).

`own_cwd`: no other task's ranks start in `cwd`, although it is not made from `code`: files in it are these ranks'.
`own_files`: the folders of the task may be on a disk of this node's own. `resumes`: FERMI_RESUME_FROM is handed over by
a rule, or named by the request, so rank 0 does not start where that is missing. `resumes_in_place`: the script looks
for it where it saves its own, so one in another task's tree is copied (see `worktree.py`).

`code`: what `cwd` is made from before the ranks start (see `code_delivery.py`); `doing` of the status has its progress.

`command` and `env` may have placeholders (see `placeholders.py`); `secrets`: variables of `env` that have none.

`confine`: the paths that the ranks can access (see `sandbox.py`); without it, those that the runner can.

`bounds`: what they may use of the machine (see `bounds.py` and `disk_usage.py`); without it there is no limit.
`memory_guard`: they are ended before the container has no memory left (see `memory_guard.py`).

A rank writes its output directly into its log file, opened for append: the runner is not involved, and nothing is lost
when it dies. A rank cannot outlive its runner (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from fermi.probe.facts import SOURCE
from fermi.probe.setup import LauncherFiles, RankFiles
from fermi.runner import (
    caches,
    causes,
    drill,
    first_failure,
    kernel,
    leftover_ranks,
    placeholders,
    ports,
    processes,
    ras,
)
from fermi.runner.activity import MAX_IDLE_SECONDS, STRICT_IDLE_CPU_SHARE, ActivityTracker
from fermi.runner.bounds import Bounds
from fermi.runner.channel import OTHER_PYTHON
from fermi.runner.disk_usage import DiskMonitor
from fermi.runner.exit_codes import CANNOT_START, to_shell_code
from fermi.runner.file_scan import FileScan
from fermi.runner.files import (
    PulseFile,
    RunnerPaths,
    StatusFile,
    TelemetryFile,
    build_first_status,
    read_json,
    try_lock,
)
from fermi.runner.memory_guard import MemoryGuard, find_limited_group
from fermi.runner.node_facts import NodeFacts
from fermi.runner.output_pipes import FileSink, OutputPipes
from fermi.runner.rank import PYTHON_VARIABLE, UnwindToRankError, can_run_here, run_rank_here, start_rank
from fermi.runner.records import RankRecords
from fermi.runner.stop_requests import StopRequest, StopRequests
from fermi.runner.telemetry import TelemetryThread, read_visible_gpus
from fermi.runner.watch import LogFile, RankOutput, RankWatcher, ReportPulses
from fermi.telemetry.xids import XidReader

SIBLINGS_GRACE_SECONDS = 5.0
"""How long the other ranks get to exit by themselves (to save, and to print why) after one of them failed."""
IDLE_SIBLING_SECONDS = 0.5
"""Those that are idle for so long wait in a collective for the lost one: they are ended at once."""
IDLE_POLL_SECONDS = 0.1
IDLE_CHECKS = 10
"""Checks for activity within the time after which a rank counts as idle."""
SAVE_RETRY_SECONDS = 0.5
STOP_POLL_SECONDS = 0.25
MAX_CHECKPOINT_CHECKS = 4

LAUNCHER_EXCEPTIONS = ("ChildFailedError", "ProcessExitedException", "SignalException")
"""Exceptions by which launchers say that a rank has failed, not why."""

SaveStatus = Callable[[dict[str, Any]], bool]
"""Publishes a node's status at each change; returns False if it has to be saved again."""


class Node:
    """Lifecycle of one node. `ranks` are the entries of its status, in order of local rank. `stops`: stop requests;
    `save`: publishes the status; `pipes`: take the ranks' output, which otherwise goes into their log files. `folder`:
    has its own files. `lock`: a descriptor that no rank may inherit. `whole`: there are no other nodes, and no one else
    watches. `tell`: gets the ranks' pulses, every `tell_seconds`. `tell_used`: gets telemetry."""

    def __init__(
        self,
        spec: dict[str, Any],
        stops: StopRequests,
        save: SaveStatus,
        pipes: OutputPipes | None = None,
        *,
        folder: str = "",
        lock: int | None = None,
        whole: bool = False,
        report_pulses: ReportPulses | None = None,
        tell_seconds: float = 1.0,
        tell_used: ReportPulses | None = None,
    ) -> None:
        self.spec, self.stops, self._save, self.pipes = spec, stops, save, pipes
        self.own_folder, self.folder, self.lock, self.whole = folder, folder or spec["cwd"], lock, whole
        self.status = build_first_status(spec["name"], spec["node_rank"], "starting")
        self.status |= {"asked": "", "asked_at": None}  # the signal that requested the end
        self.status["runner"] = {"pid": os.getpid(), "start_time": processes.read_start_time(os.getpid())}
        self.ranks = self.status["ranks"] = [
            {"rank": r["rank"], "local_rank": r["local_rank"], "pid": None, "start_time": None, "state": "waiting",
             "exit_code": None, "ended_at": None, "asked": False, "still_since": None, "error": None, "stalled": None,
             "kill": None, "called_at": time.time(), "began_at": None, "last_step": None, "trainer": None,
             "joined_as": None} for r in spec["ranks"]
        ]  # fmt: skip
        self.last_seconds: float = spec.get("last_seconds", MAX_IDLE_SECONDS)
        self.asked_at: dict[int, float] = {}  # by rank, unix seconds: the first time
        self.kill_at: float | None = None  # monotonic seconds; set once the ranks have been asked to end
        self.look_at = time.monotonic() + self.last_seconds / IDLE_CHECKS
        self.unsaved = False  # what is in memory is newer than what is written
        self.still_seconds: float | None = None
        self.stillness: ActivityTracker | None = None
        self.failed: set[int] = set()  # processes of ranks that an exception had ended before they were killed
        self.hung_ranks: list[int] = []  # ranks that were killed because all others had ended well, and long ago
        self.confinement: Any = None  # a `confine.Confinement`
        self.bounds: Bounds | None = None
        self.disk_use: DiskMonitor | None = None
        self.memory_guard: MemoryGuard | None = None
        self.files: FileScan | None = None
        self.facts: NodeFacts | None = None
        self.lacks_checkpoint = ""
        self.memory = kernel.OomDetector()
        self.watch: RankWatcher | None = None
        if spec.get("pulse"):
            seconds = spec.get("pulse_seconds", tell_seconds)
            self.watch = RankWatcher(spec["cwd"], spec.get("hang_seconds"), report_pulses, seconds, spec["env"])
        self.records = RankRecords()
        self.outputs: dict[int, RankOutput] = {}
        self.tell_used = tell_used
        self.xids = XidReader(read_visible_gpus(spec))
        measured = tell_used and spec.get("measured", True)
        self.measuring = TelemetryThread(spec, self.ranks, self.folder, self.xids) if measured else None
        self.drill = drill.RankKillDrill.from_spec(spec, self.steps)
        self.starts_ranks = spec.get("processes") == "node"
        self.signal_to_follow = 0  # that its ranks got first
        self.left_with: int | None = None  # exit code of a launcher that has ended before the ranks that it started
        if self.starts_ranks and not pipes:
            sinks = {rank["rank"]: FileSink(rank["log"]).write for rank in spec["ranks"][1:]}
            self.pipes = OutputPipes(sinks, frames=sinks)

    def run(self) -> None:
        """Run the node to its end. May raise UnwindToRankError (in a child)."""
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGUSR1, *self.stops.signals):
            signal.signal(number, lambda *_: None)
        processes.adopt_orphans()
        self.save("starting")
        if early := self.stops.early():
            self.status.update(asked=early.by, asked_at=time.time() if early.by else None)
        elif not self.record_port_cause() and self.apply_bounds() and self.bring(wake) and self.find_checkpoint():
            self.files = FileScan.from_spec(self.spec, time.time())
            self.start_all(inherited=[wake, wake_write, *self.xids.descriptors()])
            if self.measuring:
                self.measuring.start()
            if self.disk_use:
                self.disk_use.start()
            if self.memory_guard:
                self.memory_guard.start()
            if self.files:
                self.files.start()
            if self.facts:
                self.facts.start()
            self.report_missing_checkpoint()
        self.follow(wake)
        leftover_ranks.record_leftover_programs(self.ranks, self.spec["command"])
        self.sweep()
        if self.disk_use:
            self.disk_use.close()
        if self.memory_guard:
            self.memory_guard.close()
        self.report_telemetry(last=True)
        self.report_files(last=True)
        if self.pipes:
            self.pipes.close()
        if self.confinement:
            self.confinement.close()
        for entry in self.ranks:
            self.record_gpu_error(entry, entry["pid"])  # a journal says it later
        self.save("exited")
        while self.unsaved:
            time.sleep(SAVE_RETRY_SECONDS)
            self.save("exited")
        if self.bounds:
            self.bounds.close()

    def save(self, state: str) -> None:
        """Publish the status with this state."""
        self.status["state"] = state
        self.unsaved = not self._save(self.status)

    # --- how ranks begin ---

    def apply_bounds(self) -> bool:
        """Set up the limits that the spec has. Return False if the ranks must not start because their disk is too
        full."""
        order, env = self.spec.get("bounds"), self.spec["env"]
        if self.spec.get("memory_guard") and (group := find_limited_group()):
            self.memory_guard = MemoryGuard(group, self.leaders)
        if not order:
            return True
        self.bounds = Bounds(order, self.spec["name"], self.leaders)
        self.memory = kernel.OomDetector()  # of the group that it has joined
        folders = [self.own_folder]
        if any(rank["rank"] == 0 for rank in self.ranks):  # one of all that see the task's folders counts them
            folders += [env.get("FERMI_OUTPUT_DIR", ""), env.get("FERMI_CHECKPOINT_DIR", "")]
            folders += [os.path.dirname(rank.get("log", "")) for rank in self.spec["ranks"]]
            folders += [self.spec["cwd"]] if "code" in self.spec else []
        self.disk_use = DiskMonitor(order, self.spec["name"], folders)
        if found := self.disk_use.refusal():
            self.blame(found)
        return found is None

    def leaders(self) -> dict[int, int]:
        """Return the rank of each rank's first process."""
        return {one["pid"]: one["rank"] for one in self.ranks if one["pid"]}

    def bring(self, wake: int) -> bool:
        """Set up the task's code and packages if it has any. Return whether the ranks may start."""
        if "code" not in self.spec:
            return True
        from fermi.runner.code_delivery import CodeDelivery, is_delivered
        from fermi.runner.package_cache import acquire_environment

        if is_delivered(self.spec):
            return True
        bringing = CodeDelivery(self.spec)
        try:
            while not bringing.is_over:
                if bringing.listen(STOP_POLL_SECONDS, wake):
                    self.status["doing"] = bringing.doing
                    self.save("starting")
                signals = b""
                with contextlib.suppress(BlockingIOError):
                    signals = os.read(wake, 4096)
                for stop in self.stops.iterate_new(signals):
                    self.status.update(asked=stop.by, asked_at=time.time() if stop.by else None)
                    return False
        finally:
            bringing.close()
            self.status["doing"] = None
        if bringing.failed:
            self.status["cause"] = bringing.failed
            print(f"fermi: the ranks were not started: {bringing.failed}", file=sys.stderr, flush=True)
            return False
        if bringing.done:
            acquire_environment(os.path.dirname(os.path.dirname(bringing.done)))  # to the end of this process
            self.use_interpreter(bringing.done)
        return True

    def find_checkpoint(self) -> bool:
        """Look for the checkpoint that ranks resume from. Return False if rank 0 must not start without it."""
        path = {**os.environ, **self.spec["env"]}.get("FERMI_RESUME_FROM", "")
        if not os.path.isabs(path) or has_path(path):
            return True
        self.lacks_checkpoint = path
        if self.spec.get("resumes") and any(rank["rank"] == 0 for rank in self.spec["ranks"]):
            self.blame({"code": "RESUME_NOT_ON_NODE", "path": path})
            return False
        return True

    def report_missing_checkpoint(self) -> None:
        """Say in the log of the node's first rank that the checkpoint to resume from is not here."""
        if self.lacks_checkpoint and self.spec["ranks"][0]["local_rank"] == 0:
            notice = {"code": "RESUME_NOT_ON_NODE", "params": {"path": self.lacks_checkpoint}}
            self.records.append_record(self.spec["ranks"][0]["rank"], {"notice": notice})

    def use_interpreter(self, python: str) -> None:
        """Replace the planned interpreter with that of the task's own packages, which no process here has imported."""
        from fermi.runner.code_delivery import build_interpreter_env, write_chosen_interpreter

        planned = self.spec["code"].get("python") or sys.executable
        if self.spec.get("fork") and "torch" in sys.modules:
            self.spec["imports"] = f"{OTHER_PYTHON} {python}"
        self.spec["command"] = [python if word == planned else word for word in self.spec["command"]]
        self.spec["fork"] = False
        self.spec["env"].update(build_interpreter_env(python, self.spec["env"]))
        if PYTHON_VARIABLE in self.spec["env"]:
            self.spec["env"][PYTHON_VARIABLE] = python
        if chosen := self.spec["code"].get("chosen"):
            write_chosen_interpreter(chosen, python)

    def start_all(self, inherited: list[int]) -> None:
        """Start all ranks; if one cannot be started, end the others."""
        self.confine()
        if why := self.spec.get("imports"):
            self.write_to_log(f"fermi: ranks import PyTorch themselves: {why}")
        self.spec["env"].setdefault(ras.ADDRESS_VARIABLE, ras.choose_address())
        if self.lock is not None:
            inherited = [*inherited, self.lock]
        for entry, rank in zip(self.started_entries(), self.spec["ranks"]):  # noqa: B905 (strict is newer than 3.9)
            self.start(entry, rank, inherited)
        if any(entry["exit_code"] for entry in self.ranks):
            self.ask_to_end(0.0)
        self.save("running")

    def confine(self) -> None:
        """Create the sandbox if the spec has one; otherwise the runner may have been sent without that module."""
        if node_cache := self.spec["env"].get(caches.NODE_CACHE_VARIABLE):
            try:
                caches.make_node_cache(node_cache)
            except OSError as error:
                del self.spec["env"][caches.NODE_CACHE_VARIABLE]
                self.write_to_log(
                    f"fermi: compiled kernels are not kept on this node: {error.filename}: {error.strerror}"
                )
        if order := self.spec.get("confine"):
            from fermi.runner.sandbox import Sandbox

            self.confinement = Sandbox(order, self.spec["name"], os.environ)
            self.log_gaps(self.confinement.gaps)
        if outputs := self.spec["env"].get("FERMI_OUTPUT_DIR"):
            with contextlib.suppress(OSError):  # a rank that writes there says so
                os.makedirs(outputs, exist_ok=True)

    def log_gaps(self, gaps: list[str]) -> None:
        """Write to the log of the first rank what this machine cannot protect from the ranks."""
        if gaps:
            self.write_to_log(f"fermi: this machine cannot keep ranks from all that is not theirs: {'; '.join(gaps)}")

    def write_to_log(self, line: str) -> None:
        """Write a line to the log of the first rank, and to ours."""
        print(line, file=sys.stderr, flush=True)
        first = self.spec["ranks"][0]
        if self.pipes and first["rank"] in self.pipes.sinks:
            self.pipes.sinks[first["rank"]](f"{line}\n".encode())
            return
        with contextlib.suppress(OSError), open(first["log"], "a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def start(self, entry: dict[str, Any], rank: dict[str, Any], inherited: list[int]) -> None:
        """Start one rank, or record why it cannot be started."""
        confinement = self.confinement
        env = confinement.environment(os.environ) if confinement else os.environ
        try:
            output = self.open_output(rank)
        except OSError as error:
            print(f"fermi: rank {rank['rank']} was not started: {error}", file=sys.stderr, flush=True)
            for one in self.ranks if self.starts_ranks else [entry]:
                one.update(state="exited", exit_code=CANNOT_START, ended_at=time.time(), asked=one is not entry)
            self.record_disk_cause()
            return
        number, watch = rank["rank"], self.watch
        env = {**env, **self.spec["env"], **rank["env"]}
        env |= caches.build_cache_env(env)
        command = [placeholders.fill_text(word, env) for word in self.spec["command"]]
        python = env.get(PYTHON_VARIABLE, command[0])
        if entry is self.ranks[0]:
            self.facts = NodeFacts.from_spec(self.spec, env)
        outputs = [self.open_output(one) for one in self.spec["ranks"][1:]] if self.starts_ranks else []
        pulse: RankFiles | LauncherFiles | None = None
        for descriptor in outputs:  # a rank of another user opens it through /proc (`fermi.probe.inner_ranks`)
            os.fchmod(descriptor, 0o666)
        if watch and self.starts_ranks:
            pulse = watch.give_launcher([one["rank"] for one in self.ranks], output, outputs)
        elif watch:
            pulse = watch.give(number)
            inherited = [*inherited, *watch.descriptors(but=number)]
        pid = start_rank(
            number, command, placeholders.fill_env(env, self.spec.get("secrets", ())), self.spec["cwd"], output,
            fork=bool(self.spec.get("fork")) and can_run_here(command, python), confinement=confinement,
            signals=self.stops.signals, pulse=pulse, batch=read_visible_gpus(self.spec) == "",
            limit=self.bounds.limit_process if self.bounds else None, venv=self.spec.get("venv", ""),
            inherited=inherited,
        )  # fmt: skip
        for descriptor in outputs:
            os.close(descriptor)
        entry.update(pid=pid, start_time=processes.read_start_time(pid), state="running", began_at=time.time())
        self.record_from(rank, pid)
        if watch:
            watch.add(entry, self.output(rank), entry)
        if self.starts_ranks:
            for other, its in zip(self.ranks[1:], self.spec["ranks"][1:]):  # noqa: B905
                other.update(state="running", began_at=entry["began_at"])
                self.record_from(its, pid)
                if watch:
                    watch.add(other, self.output(its), entry)

    def record_from(self, rank: dict[str, Any], session: int) -> None:
        """Write the records of a rank into its log from now on. `session`: its process, or its launcher's."""
        files = self.watch.get_files(rank["rank"]) if self.watch else None
        self.records.add(rank["rank"], self.output(rank), files.records if files else None, session)

    def output(self, rank: dict[str, Any]) -> RankOutput:
        """Return the output of the rank."""
        number = rank["rank"]
        if number not in self.outputs:
            piped = self.pipes and number in self.pipes.sinks
            self.outputs[number] = self.pipes.carried[number] if self.pipes and piped else LogFile(rank["log"])
        return self.outputs[number]

    def open_output(self, rank: dict[str, Any]) -> int:
        """Return a descriptor for the output of the rank."""
        if self.pipes and rank["rank"] in self.pipes.sinks:
            return self.pipes.open(rank["rank"])
        return os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)

    # --- while they run ---

    def follow(self, wake: int) -> None:
        """Watch the ranks until none runs."""
        activity = ActivityTracker((entry["pid"] for entry in self.ranks if entry["pid"]), STRICT_IDLE_CPU_SHARE)
        while self.running():
            for stop in self.stops.iterate_new(self.sleep(wake)):
                self.obey(stop)
            self.reap()
            self.signal_launcher()
            if self.unsaved:
                self.save(self.status["state"])
            if self.drill and self.kill_at is None and (about := self.drill.find_due_checkpoint()):
                self.kill_for_drill(self.drill.rank, about)
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.signal_ranks(signal.SIGKILL)
            elif self.stillness:
                self.kill_idle_ranks(self.stillness)
            self.enforce_bounds()
            self.check_progress(activity)

    def running(self) -> list[dict[str, Any]]:
        """Return the entries of running ranks."""
        return [entry for entry in self.ranks if entry["state"] == "running"]

    def started_entries(self) -> list[dict[str, Any]]:
        """Return the entries of the ranks whose processes this runner starts; of a launcher the first alone."""
        return self.ranks[:1] if self.starts_ranks else self.ranks

    def sleep(self, wake: int) -> bytes:
        """Wait for a signal or the next check, and return the numbers of the signals that came."""
        seconds = IDLE_POLL_SECONDS if self.stillness else STOP_POLL_SECONDS
        if self.kill_at is not None:
            seconds = min(seconds, max(0.0, self.kill_at - time.monotonic()))
        if self.pipes:
            self.pipes.carry(seconds, wake)
        else:
            select.select([wake], [], [], seconds)
        try:
            return os.read(wake, 4096)
        except BlockingIOError:
            return b""

    def reap(self) -> None:
        """Collect ended children, including orphans of ranks, which this process adopts."""
        changed: list[int] = []
        by_pid = {entry["pid"]: entry for entry in self.started_entries() if entry["state"] == "running"}
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid, wait_status = 0, 0
            if pid == 0:
                break
            if entry := by_pid.get(pid):
                if self.memory_guard and self.memory_guard.found:
                    self.enforce_bounds()
                code = 1 if pid in self.failed else os.waitstatus_to_exitcode(wait_status)
                if self.starts_ranks:
                    self.left_with = code
                    continue
                entry.update(state="exited", exit_code=code, ended_at=time.time(), still_since=None)
                self.last_words(entry)
                changed.append(code)
        if self.left_with is not None and self.running() and not self.waits_for_inner_ranks():
            self.end_inner_ranks(self.left_with)
            changed.append(self.left_with)
        if any(code > 0 or code == -signal.SIGBUS for code in changed) and self.kill_at is None:
            self.enforce_bounds(certainly=True)
            self.record_disk_cause()
        if any(changed) and self.kill_at is None:  # after all that ended by themselves have been counted
            self.ask_to_end(SIBLINGS_GRACE_SECONDS, IDLE_SIBLING_SECONDS)
        if changed:
            self.save("running")

    def waits_for_inner_ranks(self) -> bool:
        """Return True while ranks that were asked to end outlive their launcher: a shell ends at once, and they may be
        saving."""
        return (
            self.kill_at is not None and time.monotonic() < self.kill_at and bool(processes.list_living_descendants())
        )

    def end_inner_ranks(self, code: int) -> None:
        """Record the end of all ranks with the exit code of their launcher. Who has failed is known from the exceptions
        that ranks have written, and from what the launcher reports of them; the others are not blamed."""
        errors = self.watch.read_errors() if self.watch else {}
        own = errors.pop(-1, None)
        failures = dict(own.pop("failures")) if own else {}
        asked = -signal.SIGTERM  # by the launcher, because another one had failed
        blamed = [one for one in self.ranks if one["rank"] in errors or failures.get(one["local_rank"], asked) != asked]
        culprits = (blamed if code else []) or self.ranks[:1]
        first = next((one for one in culprits if failures and one["local_rank"] == next(iter(failures))), culprits[0])
        if own and own["type"] not in LAUNCHER_EXCEPTIONS and not any(one["rank"] in errors for one in culprits):
            first["error"] = own
        for entry in self.ranks:
            failed = failures.get(entry["local_rank"], code) if code else 0
            if entry not in culprits and code:
                self.record_request(entry)
            entry.update(
                state="exited", exit_code=1 if failed and entry["pid"] in self.failed else failed,
                ended_at=time.time(), still_since=None,
            )  # fmt: skip
            self.last_words(entry)

    def last_words(self, entry: dict[str, Any]) -> None:
        """Complete the entry of a rank that has ended: its exception, and what the kernel reports."""
        process = self.watch.process(entry) if self.watch else entry["pid"]
        if to_shell_code(entry["exit_code"]) == to_shell_code(-signal.SIGKILL) and not entry["asked"]:
            entry["kill"] = self.memory.explains(process)
        self.record_gpu_error(entry, process)
        self.records.finish_rank(entry["rank"])
        if self.watch:
            self.watch.ended(entry)
        if self.confinement and entry["error"]:
            entry["error"]["refused"] = self.confinement.refusal(str(entry["error"].get("message")))
        self.prefer_exception(entry)
        with contextlib.suppress(OSError, ValueError):  # what cannot be looked up is not known
            self.record_port_conflict(entry)

    def prefer_exception(self, entry: dict[str, Any]) -> None:
        """Mark a rank that raised an exception before it was asked to end as not asked: it ended by its exception. A
        process takes seconds to exit (exit handlers, threads, leaving a group), in which a peer's failure may come
        first; the signal that follows explains nothing. The exit code becomes 1, Python's for an uncaught exception."""
        raised_at = first_failure.read_raised_at(entry["error"])
        if entry["asked"] and 0 < raised_at <= self.asked_at.get(entry["rank"], 0.0):
            entry["asked"] = False
            if entry["exit_code"] < 0:
                entry["exit_code"] = 1

    def record_request(self, entry: dict[str, Any]) -> None:
        """Record that the rank is asked to end, and when, so that its end blames no rank."""
        entry["asked"] = True
        self.asked_at.setdefault(entry["rank"], time.time())

    def record_gpu_error(self, entry: dict[str, Any], process: int) -> None:
        """Record what the kernel reports of the GPU of a rank that has failed."""
        if entry["exit_code"] and not entry["asked"] and not entry["kill"]:
            entry["kill"] = self.xids.explains(entry["local_rank"], process)

    def record_port_conflict(self, entry: dict[str, Any]) -> None:
        """Record which process listens on the port that the rank could not have, while it still does. If rank 0 could
        not have the rendezvous port, and no process of this task has it, that is why the ranks ended."""
        if not entry["exit_code"] or entry["asked"] or entry["kill"]:
            return
        number = entry["rank"]
        rank = next(one for one in self.spec["ranks"] if one["rank"] == number)
        if self.pipes:
            self.pipes.carry(0.0)
        said = self.output(rank).tail().decode(errors="replace")
        port = causes.find_unavailable_port(f"{said}\n{(entry['error'] or {}).get('message', '')}")
        if port is None:
            return
        env = {**os.environ, **self.spec["env"], **rank["env"]}
        meets_at = str(env.get("MASTER_PORT", ""))
        if port == 0 and number == 0 and meets_at.isdecimal():
            port = int(meets_at)
        if not port or ports.is_port_free(port):
            return
        task, ranks = env.get("FERMI_TASK_ID", ""), {one["pid"]: one["rank"] for one in self.ranks if one["pid"]}
        uid = ((self.spec.get("confine") or {}).get("user") or {}).get("uid", os.geteuid())
        entry["kill"] = found = {**causes.describe_port_holder(port, task, ranks, uid), "fixed": str(port) != meets_at}
        if number == 0 and not found["fixed"] and "started" not in found and not self.status.get("cause"):
            self.status["cause"] = {
                "code": "MASTER_PORT_TAKEN",
                "port": port,
                "holder": ports.describe_holder(port) or None,
            }

    def sweep(self) -> None:
        """Kill what the ranks left behind, until nothing is left."""
        while processes.list_living_descendants():
            processes.kill_descendants()
            self.reap()
            time.sleep(0.005)

    # --- how they are made to end ---

    def obey(self, stop: StopRequest) -> None:
        """Carry out a stop request. What ranks do after a signal is neither failure nor success: only earlier ends are
        judged."""
        if stop.by:
            self.reap()
            running = self.running()
            if running and not self.status["asked"]:
                self.status.update(asked=stop.by, asked_at=time.time())
                for entry in running:
                    self.record_request(entry)
                self.save(self.status["state"])
        grace_seconds = self.spec["grace_seconds"] if stop.grace_seconds is None else stop.grace_seconds
        if stop.reached_ranks:
            self.kill_at = self.kill_at or time.monotonic() + grace_seconds
        else:
            self.ask_to_end(grace_seconds, stop.still_seconds)

    def ask_to_end(self, grace_seconds: float, still_seconds: float | None = None) -> None:
        """Send the stop signal once; a later request with a shorter grace period brings the kill forward."""
        kill_at = time.monotonic() + grace_seconds
        if self.kill_at is None:
            self.signal_ranks(getattr(signal, self.spec["stop_signal"]))
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if still_seconds is not None and self.stillness is None:
            self.still_seconds = still_seconds
            started = (entry for entry in self.started_entries() if entry["state"] == "running")
            self.stillness = ActivityTracker(entry["pid"] for entry in started)

    def enforce_bounds(self, *, certainly: bool = False) -> None:
        """End the node at once if it exceeds its limits, for each moment is at the cost of others. What cannot be
        counted ends no training. `certainly`: count even if hardly anything has changed."""
        found = self.disk_use.found if self.disk_use else None
        if not found and self.memory_guard:
            found = self.memory_guard.found
        if self.bounds and not found:
            with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
                found = self.bounds.check(certainly=certainly)
        if not found:
            return
        if self.kill_at is None and not self.status.get("cause"):
            self.blame(found)
        for entry in self.running():
            self.record_request(entry)
        if self.bounds:
            self.bounds.forbid_new_processes()
        processes.kill_descendants()
        self.ask_to_end(0.0)

    def signal_ranks(self, number: int) -> None:
        """Signal all running ranks."""
        for entry in self.running():
            self.signal_rank(entry, number)
        if self.starts_ranks and number == signal.SIGKILL:
            processes.kill_descendants()

    def signal_rank(self, entry: dict[str, Any], number: int) -> None:
        """Signal the process group of a rank: it leads its session and group, which has its helpers. Ranks of a
        launcher are signalled by that, which may have put them into groups of their own."""
        self.record_request(entry)
        if self.starts_ranks and (entry is not self.ranks[0] or self.left_with is not None):
            return
        if self.starts_ranks and number != signal.SIGKILL and (inner := self.list_inner_processes()):
            self.signal_to_follow = number
            for pid in inner:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(entry["pid"], number)

    def list_inner_processes(self) -> list[int]:
        """Return the ranks' processes if they share the launcher's process group: a launcher that has left them there
        (`torch.multiprocessing.spawn`) hands no signal on, and would end them unsaved if it ended by one itself."""
        launcher = self.ranks[0]["pid"]
        pids = {self.watch.process(entry) if self.watch else 0 for entry in self.ranks}
        found = []
        for pid in pids - {0, None}:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(pid) == launcher and processes.read_start_time(pid):
                    found.append(pid)
        return found if found != [launcher] else []

    def signal_launcher(self) -> None:
        """Signal the launcher too once its ranks have ended: a shell would go on with its next line."""
        if self.signal_to_follow and self.left_with is None and not self.list_inner_processes():
            number, self.signal_to_follow = self.signal_to_follow, 0
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.ranks[0]["pid"], number)

    def steps(self, rank: int) -> int | None:
        """Return how many optimizer steps the rank has made, or None if unknown."""
        watched = self.watch.watched.get(rank) if self.watch else None
        page = watched.sample.page if watched else None
        return page.step if page else None

    def kill_for_drill(self, rank: int, about: dict[str, Any]) -> None:
        """Kill the rank once, as a fault of the node would, and write the drill's line to its output."""
        self.drill = None
        for entry, asked in zip(self.ranks, self.spec["ranks"]):  # noqa: B905 (strict is newer than 3.9)
            if entry["rank"] == rank and entry["state"] == "running":
                if self.pipes and rank in self.pipes.sinks:
                    self.pipes.sinks[rank](drill.format_drill_line(about))
                else:
                    with open(asked["log"], "ab") as log:
                        log.write(drill.format_drill_line(about))
                self.kill_process(entry)

    def kill_process(self, entry: dict[str, Any]) -> None:
        """Kill a rank and its helpers; one that a launcher has started without it, unless it has no process yet."""
        pid = (self.watch.process(entry) if self.watch and self.starts_ranks else 0) or entry["pid"]
        with contextlib.suppress(ProcessLookupError, TypeError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)

    # --- those that do nothing ---

    def kill_idle_ranks(self, stillness: ActivityTracker) -> None:
        """Kill ranks that are idle since they were asked to end."""
        still = stillness.seconds()
        for entry in self.started_entries():
            if entry["state"] == "running" and still.get(entry["pid"], 0.0) >= (self.still_seconds or 0.0):
                self.signal_rank(entry, signal.SIGKILL)

    def check_progress(self, activity: ActivityTracker) -> None:
        """Check the ranks' progress. What cannot be read ends no training."""
        changed, moment = False, time.time()
        self.records.update()
        self.report_files()
        try:
            changed = bool(self.watch and self.watch.update())
        except Exception as error:
            print(f"fermi: ranks are not watched any more: {error!r}", file=sys.stderr, flush=True)
            self.watch, changed = None, True
            for entry in self.ranks:
                entry["stalled"] = None
        self.report_telemetry()
        if self.kill_at is None and time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + self.last_seconds / IDLE_CHECKS
            changed = (
                leftover_ranks.record_idle_ranks(self.ranks, activity.seconds(), moment, self.last_seconds) or changed
            )
        elif not changed:
            return
        if changed:
            self.save(self.status["state"])
        if self.kill_at is None:
            self.end_leftover_ranks(moment)

    def report_files(self, *, last: bool = False) -> None:
        """Write what was found in the ranks' files, and the facts of the node, into the log of the node's first rank.
        `last`: no rank is left."""
        first = self.spec["ranks"][0]["rank"]
        if self.facts:
            for record in self.facts.finish() if last else self.facts.pop_records():
                self.records.append_record(first, {"source": SOURCE, **record})
        if not self.files:
            return
        if last:
            found = self.files.finish()
        else:
            self.files.record_step(self.steps(first))
            found = self.files.pop_records()
        for record in found:
            self.records.append_record(first, record)
            if self.drill and (saved := record.get("checkpoint")) and "parts" not in saved:
                self.drill.record_found(saved["path"], saved["size_bytes"])

    def report_telemetry(self, *, last: bool = False) -> None:
        """Report the telemetry samples that there are."""
        if self.measuring and self.tell_used:
            samples = self.measuring.rest() if last else self.measuring.pop_samples()
            if samples:
                self.tell_used(samples)

    def end_leftover_ranks(self, moment: float) -> None:
        """Kill ranks that hang after an exception, and end those that will never end."""
        for entry in leftover_ranks.find_hanging_failures(self.ranks):
            self.failed.add(entry["pid"])
            self.kill_process(entry)
        left = (
            leftover_ranks.find_stuck_ranks(self.ranks, moment, self.last_seconds)
            if self.whole and not self.failed
            else []
        )
        if left:
            self.hung_ranks = [entry["rank"] for entry in left]
            self.ask_to_end(0.0)

    # --- why ---

    def blame(self, bound: dict[str, Any]) -> None:
        """Record the cause of the ranks' end, or of no start, in the status and the runner's own log."""
        self.status["cause"] = bound
        print(f"fermi: the ranks are ended, or not started: {bound}", file=sys.stderr, flush=True)

    def first_to_fail(self) -> dict[str, Any] | None:
        """Return the entry of this node's rank that failed first, or None."""
        end = first_failure.find_first_failure(first_failure.list_ends(self.ranks))
        return end and next(entry for entry in self.ranks if entry["rank"] == end.rank)

    def record_port_cause(self) -> bool:
        """Record the cause and return True if the port of rank 0 is taken before the ranks are started."""
        found = causes.check_master_port(self.spec.get("port"))
        if found:
            self.status["cause"] = found
        return bool(found)

    def record_disk_cause(self) -> None:
        """Record the cause if a disk that a failed rank writes to is full."""
        failed = self.first_to_fail()
        found = failed and causes.describe_full_disk(self.spec, [self.folder], failed["rank"])
        if found and not self.status.get("cause"):
            self.status["cause"] = found


def has_path(path: str) -> bool:
    """Return True if something exists at the path. A network file system may remember for a while that it did not, but
    not beyond a new listing of the folder."""
    for left in range(MAX_CHECKPOINT_CHECKS, 0, -1):
        if os.path.exists(path):
            return True
        with contextlib.suppress(OSError):
            os.listdir(os.path.dirname(path.rstrip("/")))
        if left > 1:
            time.sleep(STOP_POLL_SECONDS)
    return False


def run_node(spec_path: str, secrets: dict[str, str]) -> None:
    """Run the node of `spec_path` to its end, unless a runner has it or had it. `secrets`: variables of all ranks that
    are not in the spec. May raise UnwindToRankError (in a child)."""
    paths = RunnerPaths(spec_path)
    lock = try_lock(paths.lock)
    if lock is None or read_json(paths.status) is not None:
        return
    with open(paths.spec, encoding="utf-8") as file:
        spec = json.load(file)
    spec.update(env={**spec["env"], **secrets}, secrets=[*secrets])
    build_node(spec, paths, lock).run()


def build_node(spec: dict[str, Any], paths: RunnerPaths, lock: int) -> Node:
    """Return a node that is stopped through a file and reports in files."""
    stops, save = StopRequests(signal.SIGTERM, path=paths.stop), StatusFile(paths, len(spec["ranks"])).save
    return Node(
        spec, stops, save, folder=paths.folder, lock=lock,
        report_pulses=PulseFile(paths.pulse).save, tell_used=TelemetryFile(paths.telemetry).save,
    )  # fmt: skip


def main(spec_path: str, secrets: dict[str, str], carry_out: Callable[[str, dict[str, str]], None] = run_node) -> None:
    """Carry out the spec; if this process becomes a rank meanwhile, run that rank."""
    try:
        carry_out(spec_path, secrets)
    except UnwindToRankError as rank:
        command, env = rank.command, rank.env
    else:
        return
    run_rank_here(command, env)


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin) if sys.argv[2:] == ["-"] else {})
