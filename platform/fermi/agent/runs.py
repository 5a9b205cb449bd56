"""One attempt's rank on this host, as a folder, so that the state survives the agent.

<state>/workers/<id>/runs/<task>-<attempt>/
    rank.json     the runner's spec; the run exists from the moment that this file does
    rank.lock, rank.status.json, rank.pulse.json, rank.log, stop.json    the runner's (see `fermi.runner.node`)
    files/        the plan's                                shipped     the whole log is with the server
    secrets.json  mode 0600, until a runner has started

    absent ─▶ starting ─▶ running ─▶ exited ─▶ shipped ─▶ (removed, when it is not wanted any more)
"""

import json
import os
import shutil
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from fermi.agent.sandbox import HostSandbox
from fermi.engines import runner_reports
from fermi.engines.local import inside as local_inside
from fermi.engines.local import rank_exec
from fermi.engines.local.environment_runs import EnvironmentDisk
from fermi.jobs.user_paths import HOMES_FOLDER
from fermi.runner import exit_codes, files, status, terminate
from fermi.runner.channel import OTHER_PYTHON
from fermi.runner.late_values import Late, decode_value

EMPTY_SPEC = {"command": [], "env": {}, "ranks": [], "node_rank": 0}


@dataclass(frozen=True, slots=True)
class HostContext:
    """What an order needs of the host. `warm`: a process with the training stack imported stands by."""

    state: Path
    workspace: Path
    python: str
    confining: HostSandbox
    warm: bool = False

    @property
    def hosted(self) -> Path:
        """The folder of managed environments of this host."""
        return self.state / "hosted"

    def disk(self, inside: Mapping[str, Any]) -> EnvironmentDisk | None:
        """Return the environment that ranks run inside of; None if they run outside, or if its project is not the
        task's."""
        with suppress(ValueError, OSError):
            disk = EnvironmentDisk.from_environment(self.hosted, str(inside.get("environment") or ""))
            return disk if disk.project and disk.project == inside.get("project") else None
        return None

    def start_in(self, disk: EnvironmentDisk | None, inside: Mapping[str, Any]) -> Path:
        """Return where ranks without their own code start: where their script was written."""
        return disk.workspace if disk and disk.has_any_file(inside.get("paths") or ()) else self.workspace

    def python_of(self, disk: EnvironmentDisk | None, named: str, home: Path) -> str:
        """Return the interpreter. An unknown kernel's name is returned unchanged: the rank's log then reports that
        there is none."""
        if named and "/" not in named:
            isolation, place = self.confining.isolation, replace(self.confining.paths, home=self.hosted)
            return local_inside.find_chosen_interpreter(named, isolation, place, disk, home).path or named
        if named:
            return named
        return local_inside.get_python(disk, self.python) if disk else self.python


class RankRun:
    """A run of a rank. `process`: its part of a heartbeat, without `left`, which is also true while its log is not
    shipped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.spec_path = folder / "rank.json"
        self.spec: dict[str, Any] = json.loads(self.spec_path.read_text())
        self.shipped = (folder / "shipped").exists()
        self.failed = False
        self.acknowledged: int | None = None  # bytes of the log that the server has; None = it has not been asked
        self.update_state()

    @classmethod
    def create(cls, folder: Path, body: Mapping[str, Any], host: HostContext) -> Self:
        """Write down what is to be run; starts nothing. Raises OSError."""
        plans = folder / "files"  # the plan's
        plans.mkdir(parents=True, exist_ok=True)
        host.workspace.mkdir(parents=True, exist_ok=True)
        inside = body["spec"].get("inside") or {}
        disk, outside = host.disk(inside), host.state / body["spec"].get("home", f"{HOMES_FOLDER}/default")
        python = host.python_of(disk, str(body["spec"].get("python") or ""), outside)
        known = {Late.FILES_DIR: str(plans), Late.PYTHON: python}
        for name, text in body["files"].items():
            (plans / name).parent.mkdir(parents=True, exist_ok=True)
            (plans / name).write_text(decode_value(text, known), encoding="utf-8")
        spec = {"cwd": str(host.start_in(disk, inside)), **body["spec"]}
        spec["measured"] = False  # the agent measures the host
        spec["command"] = [decode_value(word, known) for word in spec["command"]]
        spec["env"] = {name: decode_value(value, known) for name, value in spec["env"].items()}
        spec["ranks"] = [_place_rank(rank, known, host) for rank in spec["ranks"]]
        own, packages = [], []
        if inside and not disk:
            _write_note(spec, f"{inside.get('environment')}: not kept here. Ranks run outside of it.")
        if disk:
            own, packages = [disk.workspace, disk.home], [local_inside.build_package_folder(host.hosted, disk.project)]
            spec["env"] = {**local_inside.build_variables(disk, python), **spec["env"]}
        if disk and python.startswith(f"{disk.own}/"):
            spec.update(python=python, venv=str(disk.own))
        elif python != host.python:
            spec.update(fork=False, preload=[], python=python, imports=f"{OTHER_PYTHON} {python}")
        if not host.warm:
            spec.pop("imports", None)
        if code := spec.get("code"):
            cache, tree = host.state / code["cache"], _choose_tree(body["spec"].get("cwd"), folder, spec)
            known_here = {"cache": str(cache), "chosen": str(folder / "python"), "python": python}
            spec.update(cwd=str(tree), code={**code, **known_here})
            packages, own = [*packages, cache], [*own, tree]
        if rank := next(iter(spec["ranks"]), None):
            env = {**spec["env"], **rank["env"]}
            spec["confine"] = host.confining.order(
                plans, Path(rank["log"]).parent, env, own, packages, home=disk.home if disk else outside
            )
        spec["digest"] = body["digest"]
        if secrets := body.get("secrets"):
            files.write_json_atomically(str(folder / files.SECRETS_NAME), secrets, 0o600)
        files.write_json_atomically(str(folder / "rank.json"), spec, 0o600)
        made = cls(folder)
        made.acknowledged = 0
        return made

    @classmethod
    def create_ended(cls, folder: Path, name: str, rank: int) -> Self:
        """Return a run that cannot start: it was stopped before it was known here."""
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "rank.json").exists():
            files.write_json_atomically(str(folder / "rank.json"), {**EMPTY_SPEC, "name": name, "rank": rank})
        terminate.make_unstartable(folder / "rank.json")
        return cls(folder)

    def update_state(self) -> status.NodeState:
        """Update `process`, `alive`, `absent` and `failed`, and return the node's state."""
        seen = status.read_status(self.spec_path)
        rank = seen.ranks[0] if seen.ranks else {}
        over = seen.state in ("exited", "lost") or rank.get("state") == "exited"
        state = "exited" if over else "running" if rank.get("state") == "running" else "starting"
        self.absent = seen.state == "absent"
        if not self.absent:
            (self.folder / files.SECRETS_NAME).unlink(missing_ok=True)
        self.lost = seen.state == "lost"
        self.alive = seen.left
        self.leader = rank if rank.get("pid") else None
        self.failed = over and rank.get("exit_code") != 0
        self.process = {
            "name": self.name,
            "rank": self.rank,
            "state": state,
            "pid": rank.get("pid"),
            "exitCode": rank.get("exit_code"),
            "endedAt": rank.get("ended_at"),
            "asked": bool(rank.get("asked")),
            "stillSince": rank.get("still_since"),
            "cause": seen.cause,
            "doing": runner_reports.parse_cause(seen.doing),
            **{name: rank.get(name) for name in runner_reports.EXTRA_FIELDS},
            "course": runner_reports.parse_course(rank) or None,
        }
        return seen

    @property
    def pulse(self) -> dict[str, Any] | None:
        """Its rank's progress, as its runner saw it last; None once it is over."""
        found = runner_reports.read_report(self.folder / "rank.pulse.json") if self.alive else None
        seen = next(iter(runner_reports.parse_pulses((found or {}).get("pulse")).values()), None)
        return asdict(seen) if seen else None

    @property
    def secrets(self) -> dict[str, str]:
        """Variables of its rank that are not in the spec."""
        found: dict[str, str] = files.read_json(str(self.folder / files.SECRETS_NAME)) or {}
        return found

    def open_exec_stream(self) -> socket.socket | None:
        """Return a stream to `fermi.envd.rank_exec`, in its rank's sandbox; None if the rank does not run. Raises an
        error of the engine `local` if the program does not answer."""
        order = rank_exec.build_order(self.spec, self.rank)
        return rank_exec.dial_rank(order) if order and rank_exec.is_rank_running(self.spec_path, self.rank) else None

    @property
    def rank(self) -> int:
        """The number of the rank."""
        rank: int = self.spec["ranks"][0]["rank"] if self.spec["ranks"] else self.spec["rank"]
        return rank

    @property
    def log(self) -> Path | None:
        """The path of the rank's log, or None."""
        return Path(self.spec["ranks"][0]["log"]) if self.spec["ranks"] else None

    @property
    def log_name(self) -> str:
        """`<task>/<attempt>/<rank>`."""
        assert self.log is not None
        return "/".join([*self.log.parts[-3:-1], self.log.stem])

    @property
    def left(self) -> bool:
        """Whether anything of it is still here: a process, or a byte that the server does not have."""
        return self.alive or self.absent or not self.shipped

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, and nothing can start."""
        return not self.alive and not self.absent

    @property
    def stopping(self) -> bool:
        """Whether its end was requested."""
        return (self.folder / "stop.json").exists()

    def request_end(self, grace_seconds: float, still_seconds: float | None = None) -> None:
        """Request its end; call it until nothing lives. A second, shorter grace period wins."""
        terminate.end_runners(self.folder, [self.spec_path], grace_seconds, still_seconds)

    def record_failed_start(self, why: str) -> None:
        """Record the end of a rank that could not be started, with the reason in its log."""
        paths = files.RunnerPaths(str(self.spec_path))
        lock = files.try_lock(paths.lock)
        if lock is None:
            return
        try:
            if files.read_json(paths.status) is None and self.log:
                with open(self.log, "a", encoding="utf-8") as file:
                    file.write(f"fermi: the rank could not be started: {why}\n")
                rank = {"rank": self.rank, "local_rank": 0, "pid": None, "start_time": None, "state": "exited",
                        "exit_code": exit_codes.NOT_FOUND, "ended_at": time.time()}  # fmt: skip
                ended = files.build_first_status(self.name, self.spec["node_rank"], "exited")
                files.write_json_atomically(paths.status, {**ended, "ranks": [rank]})
        finally:
            os.close(lock)

    def mark_shipped(self) -> None:
        """Record that its whole log is with the server."""
        (self.folder / "shipped").touch()
        self.shipped = True

    def remove(self) -> None:
        """Remove it, only once it is over and shipped."""
        if self.log:
            self.log.unlink(missing_ok=True)
        self.spec_path.unlink(missing_ok=True)  # first: from here on the run does not exist
        shutil.rmtree(self.folder, ignore_errors=True)


def load_runs(folder: Path) -> dict[str, RankRun]:
    """Return the runs of an earlier agent, by name; incomplete ones, and those that a crash of the host has torn, are
    removed."""
    found = {}
    for one in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            found[one.name] = RankRun(one)
        except (FileNotFoundError, ValueError):
            shutil.rmtree(one, ignore_errors=True)
    return found


def _place_rank(rank: Mapping[str, Any], values: Mapping[Late, str], host: HostContext) -> dict[str, Any]:
    log = host.state / rank["log"]
    log.parent.mkdir(parents=True, exist_ok=True)
    return {**rank, "log": str(log), "env": {name: decode_value(value, values) for name, value in rank["env"].items()}}


def _choose_tree(shared_name: str | None, folder: Path, spec: Mapping[str, Any]) -> Path:
    """Return the folder that the ranks start in: the one that all hosts share, if this host may write there. Otherwise
    one of the run's own, which is removed with it, and the rank's log says so. `shared_name`: None from an older
    platform."""
    if shared_name is None:
        return folder / "code"
    shared = Path(shared_name)
    try:
        shared.parent.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(shared if shared.exists() else shared.parent, os.W_OK | os.X_OK) else "not writable"
    except OSError as error:
        why = error.strerror or str(error)
    if not why:
        return shared
    _write_note(spec, f"{shared}: {why}. Files that the script writes beside itself are lost with this attempt.")
    return folder / "code"


def _write_note(spec: Mapping[str, Any], words: str) -> None:
    """Append a line to the log of the rank."""
    with open(spec["ranks"][0]["log"], "a", encoding="utf-8") as log:
        log.write(f"fermi: {words}\n")
