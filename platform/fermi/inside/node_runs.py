"""An attempt's node inside of an environment: its folder, and its node runner, which outlives the stream. Standard
library only, Python 3.9 or later.

    <home>/runs/<attempt>/  node-<k>.json, its status, lock and stop.json (`fermi.runner.files`); <rank>.log; files/
                            container: the life of the container that it was started in
    <home>/data/            in place of the platform's data directory, if that is not mounted here

A second start has no effect: the runner holds a lock and leaves a record. An attempt that was cancelled before it
started finds `stop.json` and never starts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fermi.inside import container_life, protocol
from fermi.runner import files, status, terminate
from fermi.runner.late_values import Late, decode_value
from fermi.runner.run_names import parse_run_name

MAX_UNUSED_SECONDS = 7 * 86_400.0
START_TIMEOUT_SECONDS = 30.0
"""How long a runner may take to write its first status: many may start at once on a busy machine."""
FORK_TIMEOUT_SECONDS = 2.0
"""The same for one that was forked, before another one is started."""
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,120}")
CONTAINER_NAME = "container"


def get_run_folder(home: str, name: Any) -> Path:
    """Return the attempt's folder. Raises ValueError for an invalid name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("no name of an attempt")
    return Path(home) / "runs" / name


def get_spec_path(folder: Path, node: Any) -> Path:
    """Return the path of a node's spec."""
    return folder / f"node-{int(node)}.json"


def has_begun(folder: Path, node: Any) -> bool:
    """Return True if the node's runner has started."""
    spec = get_spec_path(folder, node)
    there = status.read_status(spec) if spec.exists() else None
    return bool(there and (there.state != "absent" or there.left))


def begin_run(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Start the node's runner unless it has started or must not. `order`: as `fermi.engines.inside.render` makes it;
    `head`: the address of the head node; `secrets`: variables that are in no file."""
    order = request["order"]
    folder = get_run_folder(home, order["name"])
    if (folder / "stop.json").exists():
        return {"began": False, "cancelled": True}
    spec = get_spec_path(folder, order["spec"]["node_rank"])
    if has_begun(folder, order["spec"]["node_rank"]):
        return {"began": False}
    from fermi.inside import interpreters, standby, survey  # most streams begin nothing
    from fermi.runner.channel import OTHER_PYTHON

    named = str(order.get("python") or "")
    if named:
        python = survey.find_interpreter(named, {} if "/" in named else interpreters.find_interpreters())
    else:
        python = interpreters.find_default_interpreter(lambda one: standby.is_standing_by(home, one))
    clear_old_runs(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / CONTAINER_NAME).write_text(container_life.read_container_life(), encoding="utf-8")
    content = replace_data_folder(order["spec"], order.get("root", ""), order.get("data") or os.path.join(home, "data"))
    write_plan_files(folder, order.get("files") or {}, str(request.get("head") or ""))
    content.update(meeting={**order["meeting"], "head": str(request.get("head") or "")}, folder=str(folder))
    content.setdefault("cwd", choose_working_folder(home, content))
    if not standby.is_standing_by(home, python):
        content.pop("imports", None)
        if content.get("fork") and standby.has_standby(home):
            content["imports"] = f"{OTHER_PYTHON} {python}"
    if "code" in content:
        content["code"].update(cache=os.path.join(home, "packages"), chosen=str(folder / "python"))
    for rank in content["ranks"]:
        rank["log"] = str(folder / f"{rank['rank']}.log")
    files.write_json_atomically(str(spec), content, 0o600)
    start_runner(home, spec, python, request.get("secrets") or {})
    return {"began": True}


def clear_old_runs(folder: Path) -> None:
    """End what is left of older attempts of the same task, and remove runs that were not used for a long time: the
    platform removes attempts itself, unless the environment was unreachable."""
    task = parse_run_name(folder.name)[0]
    for other in folder.parent.glob("*"):
        if other == folder or not other.is_dir():
            continue
        specs = [path for path in other.glob("node-*.json") if "." not in path.stem]
        lives = any(status.read_status(spec).left for spec in specs)
        if lives and parse_run_name(other.name)[0] == task:
            terminate.end_runners(other, specs, 0.0)
        elif not lives and other.stat().st_mtime < time.time() - MAX_UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def choose_working_folder(home: str, spec: dict[str, Any]) -> str:
    """Return where ranks of a task without its own code start: where the environment's user does."""
    wanted = spec.pop("start_in", "")
    for folder in (wanted, os.environ.get("HOME", ""), os.getcwd()):
        if folder and os.path.isdir(folder):
            return folder
    return home


def replace_data_folder(value: Any, root: str, data: str) -> Any:
    """Return the value with the platform's data directory, as in the plan, replaced by the one here."""
    if not root or root == data:
        return value
    if isinstance(value, dict):
        return {name: replace_data_folder(one, root, data) for name, one in value.items()}
    if isinstance(value, list):
        return [replace_data_folder(one, root, data) for one in value]
    if isinstance(value, str) and root in value:
        return re.sub(rf"(?<![\w./-]){re.escape(root)}(?=/|$)", data.replace("\\", r"\\"), value)
    return value


def write_plan_files(folder: Path, contents: dict[str, Any], head: str) -> None:
    """Write the plan's files. Raises ValueError for a name that leads elsewhere."""
    known = {Late.HEAD_HOST: head, Late.FILES_DIR: str(folder / "files"), Late.PYTHON: sys.executable}
    for name, pieces in contents.items():
        path = folder / "files" / name
        if ".." in path.parts or not str(path).startswith(f"{folder}/files/"):
            raise ValueError("a file's name leads elsewhere")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes_atomically(str(path), decode_value(pieces, known).encode(), 0o600)


def start_runner(home: str, spec: Path, python: str, secrets: dict[str, str]) -> None:
    """Start the runner in its own session: through the standby process if there is one, or as a new process. Raises
    InsideRefusedError if it does not start."""
    from fermi.inside import standby

    paths = files.RunnerPaths(str(spec))
    limit = time.monotonic() + START_TIMEOUT_SECONDS
    forked = standby.delegate_start(home, python, spec, secrets)
    forked_until = time.monotonic() + FORK_TIMEOUT_SECONDS if forked else 0.0
    process: subprocess.Popen[bytes] | None = None
    while files.read_json(paths.status) is None:
        if process is None and time.monotonic() > forked_until:
            process = execute_runner(paths, python, secrets)
        code = process.poll() if process else None
        if code is not None and not (forked and code == 0):  # 0: the forked one has begun
            if code == -signal.SIGKILL:  # by whoever ends the container, or the kernel: another beginning may be well
                raise protocol.InsideRefusedError("INSIDE_RUNNER_KILLED")
            said = Path(paths.log).read_bytes()[-2000:].decode(errors="replace").strip()
            raise protocol.InsideRefusedError("INSIDE_RUNNER_FAILED", python=python, why=said or f"exit code {code}")
        if time.monotonic() > limit:
            if process:
                process.kill()
            raise protocol.InsideRefusedError("INSIDE_RUNNER_SLOW", seconds=round(START_TIMEOUT_SECONDS))
        time.sleep(0.002)


def execute_runner(paths: files.RunnerPaths, python: str, secrets: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the runner as a new process. Raises InsideRefusedError if there is no such interpreter."""
    from fermi.inside import standby

    log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        given = _create_memory_file(json.dumps(secrets))
        try:
            return subprocess.Popen(
                [python, "-u", "-m", "fermi.runner.inside", paths.spec, "-"],
                stdin=given, stdout=log, stderr=log, cwd="/", env=standby.build_runner_env(), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(given)
    except OSError as error:
        raise protocol.InsideRefusedError(
            "INSIDE_PYTHON_UNUSABLE", python=python, why=error.strerror or str(error)
        ) from error
    finally:
        os.close(log)


def _create_memory_file(text: str) -> int:
    """Return a descriptor of a file without a name, positioned at its beginning."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fermi")
    else:
        descriptor, path = _create_temporary_file()
        os.unlink(path)
    with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _create_temporary_file() -> tuple[int, str]:
    import tempfile

    return tempfile.mkstemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
