"""Backend that trains on this machine. Files are its only memory; any process of the platform can use it."""

import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fermi.engines import interpreter, isolation, logfiles, runner_reports, subprocess_stream, telemetry_reports
from fermi.engines.base import Backend, RankExec, build_rank_not_running_error, build_rank_unreachable_error
from fermi.engines.failure_cause import HostLoss, build_rank_status, find_failure_cause, find_preparation
from fermi.engines.inside.session import InsideSession
from fermi.engines.isolation import Isolation
from fermi.engines.local import direct_entry, environment_runs, inside, rank_exec
from fermi.engines.local.launcher import Launcher, get_default_python
from fermi.engines.local.render import NodeSetting, render
from fermi.jobs import bounds, code
from fermi.jobs.errors import BackendError
from fermi.jobs.rank_env import COMPILE_FOLDER, uses_compile_folder
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import (
    NO_SECRETS,
    Cause,
    Handle,
    JobSpec,
    LogChunk,
    Node,
    NodePlan,
    Observation,
    Phase,
    Plan,
    Problem,
    RankProgress,
    RankStatus,
    Rendered,
    Sample,
)
from fermi.jobs.user_paths import HOMES_FOLDER, OUTPUTS_FOLDER, find_missing_path, find_output_folder, find_task_folder
from fermi.runner import files, first_failure, ports, status, terminate

MAX_PARALLEL_QUERIES = 8
"""Interpreters that a task names and that are queried at a time."""


class LocalBackend(Backend):
    """Backend on this machine: one node runner per node."""

    is_local = True

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.named = Path(connection["data_dir"]).absolute()
        self.data_dir = self.named.resolve()
        self.workspace = Path(connection.get("workspace") or self.data_dir / "workspace").resolve()
        self.script_roots = [Path(root).resolve() for root in connection.get("script_roots", ())]
        self.python = connection.get("python") or get_default_python()
        self.warm = bool(connection.get("warm", True))
        self.launcher = Launcher(self.python, warm=self.warm)
        self.bounds = bounds.build_bounds(connection, shared=True)
        self.isolation_mode = str(connection.get("isolation", "off"))
        self.place = isolation.SandboxPaths(
            self.data_dir, self.workspace, self.python,
            private=(*_list_paths(connection, "private"), *([self.named] if self.named != self.data_dir else ())),
            readable=_list_paths(connection, "data_roots"),
            reads=(*self.script_roots, *_list_paths(connection, "task_reads")),
            writes=_list_paths(connection, "task_writes"),
        )  # fmt: skip

    @property
    def isolation(self) -> Isolation:
        """What keeps ranks from files that are not theirs; determined once per process."""
        return isolation.choose_isolation(self.isolation_mode, self.place)

    def problems(self, job: JobSpec) -> list[Problem]:
        """Return what is wrong with the job on this machine."""
        found: list[Problem] = []
        if job.resume_from not in ("", "auto"):
            missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
            there = Path(os.path.realpath(job.resume_from))
            found += find_missing_path(Path(job.resume_from), missing)
            if not (found or self._task_folder(job.resume_from) or self.isolation.can_task_read(self.place, there)):
                found.append(Problem("resumeFrom", "PATH_NOT_GIVEN", {"path": str(there)}))
        if job.entrypoint and job.entrypoint.paths and not job.brings(job.entrypoint.script):
            found += self._script_problems(job)
        return found + (self._python_problems(job) if job.python else [])

    def find_run_locations(self, job: JobSpec) -> Mapping[str, RunLocations]:
        return inside.find_run_locations(self.data_dir, job)

    def find_missing_packages(
        self, node: Node, distributions: Sequence[str], job: JobSpec | None = None
    ) -> list[str] | None:
        if job and job.python:
            chosen = self._chosen(job, node)
            there = chosen.packages
            return (
                [one for one in distributions if interpreter.normalize_name(one) not in there]
                if chosen.version
                else None
            )
        lack = interpreter.find_missing_distributions(self.python, distributions)
        if lack and (disk := self._entered(node)):
            own = inside.list_distributions(disk)
            lack = [name for name in lack if interpreter.normalize_name(name) not in own]
        return lack

    def _python_problems(self, job: JobSpec) -> list[Problem]:
        """Return what is wrong with the interpreter that the job names, once for all nodes with the same problem."""
        wrong: dict[interpreter.ChosenInterpreter, list[str]] = {}
        with ThreadPoolExecutor(MAX_PARALLEL_QUERIES) as pool:
            for node, chosen in zip(job.nodes, pool.map(partial(self._chosen, job), job.nodes), strict=True):
                wrong.setdefault(replace(chosen, packages=frozenset()), []).append(node.name)
        found = (chosen.problem(job.python, ", ".join(names)) for chosen, names in wrong.items())
        return [problem for problem in found if problem]

    def _chosen(self, job: JobSpec, node: Node) -> interpreter.ChosenInterpreter:
        """Return what the job's `python` means to the ranks of a node."""
        disk = self._entered(node)
        return inside.find_chosen_interpreter(job.python, self.isolation, self.place, disk, self._home(job))

    def _home(self, job: JobSpec) -> Path:
        return self.data_dir / HOMES_FOLDER / (job.project or "default")

    def _entered(self, node: Node) -> environment_runs.EnvironmentDisk | None:
        """Return the disk of the environment that the node's ranks run inside of; None: they run outside."""
        return inside.find_disk(self.data_dir, node) if node.inside else None

    def _script_problems(self, job: JobSpec) -> list[Problem]:
        """Return what is wrong with the location of the job's own script or module; a module may be an installed one,
        unless its package lies in the workspace."""
        assert job.entrypoint
        named, workspace, script = job.entrypoint, self._workspace(job), self._script(job)
        package = workspace / named.module.partition(".")[0]
        if named.module and not os.path.isfile(script) and not os.path.exists(package):
            return []
        params = {"script": named.script or named.paths[0], "workspace": str(workspace)}
        if self.script_roots and not any(script.is_relative_to(root) for root in (workspace, *self.script_roots)):
            return [Problem(named.field, "ENTRYPOINT_OUTSIDE", params)]
        found = find_missing_path(script, Problem(named.field, "ENTRYPOINT_NOT_FOUND", params), file=True)
        if not (found or script.is_relative_to(workspace) or self.isolation.can_task_read(self.place, script)):
            return [Problem(named.field, "PATH_NOT_GIVEN", {"path": str(script)})]
        return found

    def _script(self, job: JobSpec) -> Path:
        """Return where the job's own script or module lies, or would lie."""
        assert job.entrypoint
        workspace = self._workspace(job)
        places = [os.path.realpath(workspace / path) for path in job.entrypoint.paths]
        return Path(next(filter(os.path.isfile, places), places[0]))

    def entry_text(self, job: JobSpec, max_bytes: int) -> bytes:
        named = job.entrypoint
        if named and named.paths and not job.brings(named.script) and not self._script_problems(job):
            with suppress(OSError), logfiles.open_regular_file(self._script(job)) as file:
                return file.read(max_bytes)
        return b""

    def _workspace(self, job: JobSpec) -> Path:
        """Return where a job's ranks start: where its script was written (`environment_runs.find_workspace`), or else
        in ours."""
        own = (
            None
            if job.entrypoint and job.brings(job.entrypoint.script)
            else environment_runs.find_workspace(self.data_dir, job)
        )
        return own or self.workspace

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        return render(
            job, plan, run_dir=self._run_dir(job.name), cwd=self._workspace(job), python=self.python,
            log_dir=self._log_dir(job.task_id, job.attempt), setting=partial(self._setting, job, plan),
            bounds=self.bounds, code=partial(self._code, job), stands_by=self.warm,
        )  # fmt: skip

    def _setting(self, job: JobSpec, plan: Plan, planned: NodePlan) -> NodeSetting:
        """Return the interpreter, variables and sandbox of a node's ranks. An interpreter that is named and cannot be
        found is used all the same: its ranks report that."""
        disk = self._entered(planned.node)
        named = (
            job.python if "/" in job.python or not job.python else self._chosen(job, planned.node).path or job.python
        )
        if disk is None:
            return NodeSetting(named or self.python, confine=self._confine(job, plan))
        python = named or inside.get_python(disk, self.python)
        venv = str(disk.own) if python.startswith(f"{disk.own}/") else ""
        return NodeSetting(python, venv, inside.build_variables(disk, python), self._confine(job, plan, disk))

    def _confine(
        self, job: JobSpec, plan: Plan, disk: environment_runs.EnvironmentDisk | None = None
    ) -> dict[str, Any] | None:
        """Return the sandbox of a job's ranks. Of other tasks' folders only those that this one resumes from or came
        after can be read; of environments, the `disk` of the one that ranks run inside of."""
        own = self._task_folder(job.checkpoint_dir)
        foreign = [folder for path in job.foreign_paths for folder in self._task_folder(path)]
        packages = [self._packages(job)] if job.code or disk else []
        workspace = [] if (start := self._workspace(job)) == self.workspace else [start]
        shared = [Path(job.files_dir)] if job.files_dir else []
        outputs, plans = self._output_folder(job.output_dir), self._run_dir(job.name) / "files"
        compiled = [plans / COMPILE_FOLDER] if any(map(uses_compile_folder, plan.nodes)) else []
        return self.isolation.order(
            self.place,
            own=[
                *own, *outputs, *compiled, *workspace, *([disk.workspace, disk.home] if disk else []),
                *([Path(self._code(job).tree(job))] if job.code else []),
            ],
            readable=[self.data_dir / "datasets", plans, *foreign, *packages, *shared],
            logs=self._log_dir(job.task_id, job.attempt),
            home=disk.home if disk else self._home(job),
        )  # fmt: skip

    def _output_folder(self, path: str) -> list[Path]:
        found = find_output_folder(self.data_dir, path) or find_output_folder(self.named, path)
        return [self.data_dir / OUTPUTS_FOLDER / found.name] if found else []

    def _code(self, job: JobSpec, python: str = "") -> code.CodeLocation:
        """Return where the job's code is unpacked. `python`: the interpreter of the node's ranks."""
        return code.CodeLocation(str(self.data_dir), str(self._packages(job)), str(self._run_dir(job.name)), python)

    def _packages(self, job: JobSpec) -> Path:
        return inside.build_package_folder(self.data_dir, job.project)

    def _task_folder(self, path: str) -> list[Path]:
        """Return the task's folder that a path lies in. Jobs name the data directory as the platform was given it,
        which may be by a link."""
        found = find_task_folder(self.data_dir, path) or find_task_folder(self.named, path)
        return [self.data_dir / found.parent.name / found.name] if found else []

    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Write the specs and start the runners. Secrets go to the runners through the launcher's standard input: they
        are never in a file."""
        run_dir = self._run_dir(rendered.name)
        if (run_dir / "stop.json").exists():
            return
        launch, *rest = rendered.artifacts
        nodes = [artifact for artifact in rest if artifact.kind == "node"]
        specs = [run_dir / f"{artifact.name}.json" for artifact in nodes]
        try:
            (run_dir / "files").mkdir(parents=True, exist_ok=True)
            self.workspace.mkdir(parents=True, exist_ok=True)
            for artifact in rest:
                if artifact.kind == "file":
                    _write_file(run_dir / "files" / artifact.name, artifact.content)
            for artifact, spec in zip(nodes, specs, strict=True):
                Path(artifact.content["ranks"][0]["log"]).parent.mkdir(parents=True, exist_ok=True)
                if not spec.exists():
                    files.write_json_atomically(str(spec), artifact.content, 0o600)
            files.write_json_atomically(str(run_dir / "launch.json"), launch.content)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(run_dir), why=error.strerror) from error
        if absent := [spec for spec in specs if status.read_status(spec).state == "absent"]:
            self.launcher.launch(rendered.name, absent, launch.content["preload"], run_dir / "launch.log", secrets)

    def get_rank_exec(self, rendered: Rendered, handle: Handle, rank: int) -> RankExec:
        for node in (artifact.content for artifact in rendered.artifacts if artifact.kind == "node"):
            if order := rank_exec.build_order(node, rank):
                spec = self._run_dir(handle.name) / f"node-{node['node_rank']}.json"
                if rank_exec.is_rank_running(spec, rank):
                    return RankExec(node["node_rank"], partial(_dial_rank, spec, order, handle, rank))
        raise build_rank_not_running_error(handle, rank)

    def enter(self, node: Node) -> InsideSession:
        disk = inside.find_disk(self.data_dir, node)
        if disk is None:
            raise BackendError("INSIDE_NOT_HERE", permanent=True, environment=node.name)
        newest = max((run for run in disk.runs() if not run.is_stopped), key=lambda run: run.number, default=None)
        if newest is None:
            raise BackendError("INSIDE_NOT_RUNNING", environment=node.name)
        return direct_entry.enter_environment(disk, newest)

    def observe(self, handles: Iterable[Handle]) -> dict[str, Observation]:
        return {handle.name: self._observe(handle) for handle in handles}

    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        run_dir = self._run_dir(handle.name)
        run_dir.mkdir(parents=True, exist_ok=True)
        try:
            terminate.end_runners(run_dir, self._specs(run_dir), grace_seconds, still_seconds)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(run_dir), why=error.strerror) from error

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        return logfiles.read_chunk(self._log_dir(handle.task_id, handle.attempt) / f"{rank}.log", cursor, limit)

    def pulses(self, handle: Handle) -> dict[int, RankProgress]:
        return runner_reports.read_pulses(self._run_dir(handle.name))

    def telemetry(self, handle: Handle, after: float) -> Sequence[Sample]:
        return telemetry_reports.read_samples(self._run_dir(handle.name), after)

    def port_is_free(self, port: int) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    return False
                raise
        return True

    def port_holder(self, job: JobSpec, port: int) -> str:
        return ports.describe_holder(port)

    def stand_by(self, preload: Sequence[str]) -> None:
        self.launcher.stand_by(preload)

    def delete_attempt(self, handle: Handle) -> None:
        shutil.rmtree(self._run_dir(handle.name), ignore_errors=True)

    def _run_dir(self, name: str) -> Path:
        return self.data_dir / "runs" / name

    def _log_dir(self, task_id: str, attempt: int) -> Path:
        return self.data_dir / "logs" / task_id / str(attempt)

    @staticmethod
    def _specs(run_dir: Path) -> list[Path]:
        specs = [path for path in run_dir.glob("node-*.json") if "." not in path.stem]
        return sorted(specs, key=lambda path: int(path.stem.removeprefix("node-")))

    def _observe(self, handle: Handle) -> Observation:
        run_dir = self._run_dir(handle.name)
        specs = self._specs(run_dir)
        nodes = [status.read_status(spec) for spec in specs]
        if not nodes:  # may be submitted in a moment, unless `cancel` has forbidden it
            return Observation(Phase.ABSENT, False if (run_dir / "stop.json").exists() else None)
        if all(seen.state == "absent" for seen in nodes):
            return Observation(Phase.STARTING if any(seen.left for seen in nodes) else Phase.ABSENT, left=True)
        left = any(seen.left or seen.state == "absent" for seen in nodes)  # an absent one may still start
        ranks = tuple(
            build_rank_status(entry, node_rank)
            for node_rank, seen in enumerate(nodes)
            for entry in runner_reports.parse_rank_entries(seen.ranks)
        )
        if cause := _find_cause(nodes, ranks, specs):
            return Observation(Phase.FAILED, left, ranks, cause)
        phase = _find_phase(nodes, ranks, handle.world_size)
        at = (
            (_read_node_name(spec), runner_reports.parse_cause(seen.doing))
            for spec, seen in zip(specs, nodes, strict=True)
        )
        waiting = find_preparation(at) if phase is Phase.STARTING else None
        return Observation(phase, left, ranks, waiting=waiting)


def _dial_rank(spec: Path, order: Mapping[str, Any], handle: Handle, rank: int) -> socket.socket:
    if not rank_exec.is_rank_running(spec, rank):
        raise build_rank_not_running_error(handle, rank)
    try:
        return rank_exec.dial_rank(order)
    except subprocess_stream.ProgramNotReadyError as silent:
        raise build_rank_unreachable_error(handle, rank, silent.said) from silent


def _list_paths(connection: Mapping[str, Any], name: str) -> tuple[Path, ...]:
    return tuple(Path(path).absolute() for path in connection.get(name, ()))


def _write_file(path: Path, text: str) -> None:
    """Write a file atomically: when an attempt is submitted again, its ranks may be reading it."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    os.replace(file.name, path)


def stop_everything(data_dir: str | Path, grace_seconds: float = 10.0) -> list[str]:
    """End all training of a data directory and all environments there, and return the attempts' names once nothing is
    left. Environments start again when the platform does."""
    backend = LocalBackend({"data_dir": str(data_dir), "warm": False})
    running = list_running_attempts(data_dir)
    handles = [Handle.from_name(name) for name in running]
    environments = environment_runs.list_living_runs(backend.data_dir)
    limit = time.monotonic() + grace_seconds
    while handles or environments:
        for handle in handles:
            backend.cancel(handle, grace_seconds)
        for run in environments:
            run.rest(kill=time.monotonic() >= limit)
        handles = [handle for handle in handles if backend.observe([handle])[handle.name].left]
        environments = environment_runs.list_living_runs(backend.data_dir)
        time.sleep(0.05)
    return running


def list_running_attempts(data_dir: str | Path) -> list[str]:
    """Return the names of the attempts of which something lives on this machine."""
    runs = Path(data_dir) / "runs"
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    return [run.name for run in folders if any(status.read_status(spec).left for spec in LocalBackend._specs(run))]


def _find_phase(nodes: Sequence[status.NodeState], ranks: Sequence[RankStatus], world_size: int) -> Phase:
    if len(ranks) < world_size or any(rank.state == "waiting" for rank in ranks):
        ended = all(seen.state == "exited" for seen in nodes)
        return Phase.FAILED if ended else Phase.STARTING
    if all(seen.state == "exited" for seen in nodes):
        return Phase.SUCCEEDED
    return Phase.RUNNING


def _find_cause(nodes: Sequence[status.NodeState], ranks: Sequence[RankStatus], specs: Sequence[Path]) -> Cause | None:
    def name(node_rank: int) -> str:
        return _read_node_name(specs[node_rank])

    losses = []
    for node_rank, seen in enumerate(nodes):
        about = {"nodeRank": node_rank, "node": name(node_rank)}
        if seen.asked_at:
            heard_at = seen.asked_at + first_failure.CAUSE_TOLERANCE_SECONDS  # one machine has one clock
            losses.append(HostLoss(Cause("RUNNER_TERMINATED", about), heard_at))
        elif seen.state == "lost":
            losses.append(HostLoss(Cause("RUNNER_LOST", about)))
    return find_failure_cause(ranks, name, losses, enumerate(runner_reports.parse_cause(seen.cause) for seen in nodes))


def _read_node_name(spec: Path) -> str:
    content = files.read_json(str(spec))
    return content["node"] if content else spec.stem
