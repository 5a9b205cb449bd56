"""What the local engine writes down."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.local import LocalBackend, environment_runs
from fermi.envd import interpreter
from fermi.jobs import run_location
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Observation, Phase
from fermi.planning import plugins
from fermi.runner import files, node, sandbox
from tests.goldens import job
from tests.polling import until


def test_submitting_again_never_leaves_a_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that read its script between truncating and writing ended at once, with exit code 0."""
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    monkeypatch.setattr(backend.launcher, "launch", lambda *_: None)
    spec = job("env-001")
    plan = plugins.get_framework("ddp").plan(spec)
    for text in ("first", "second"):
        backend.submit(backend.render(spec, replace(plan, files={"config": text})))
        if text == "first":
            os.link(tmp_path / "runs" / spec.name / "files" / "config", tmp_path / "being read")
    assert (tmp_path / "being read").read_text() == "first", "written over in place"
    left = list((tmp_path / "runs" / spec.name / "files").iterdir())
    assert [(file.name, file.read_text()) for file in left] == [("config", "second")]


def test_an_unreadable_script_is_refused_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 4)
    for name in ("elsewhere/train.py", "given/train.py", "given/5.pt", "elsewhere/5.pt", "data/workspace/train.py",
                 "data/token.py"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "by link").symlink_to(tmp_path / "given")
    connection = {"data_dir": str(tmp_path / "data"), "warm": False, "task_reads": [str(tmp_path / "by link")]}

    def problems(mode: str, script: str, resume: str = "") -> list[tuple[str, str]]:
        backend = LocalBackend({**connection, "isolation": mode})
        spec = replace(job("env-001"), entrypoint=Entrypoint(str(tmp_path / script)), resume_from=resume)
        return [(found.field, found.code) for found in backend.problems(spec)]

    refused = [("entrypoint.script", "PATH_NOT_GIVEN")]
    assert problems("landlock", "elsewhere/train.py") == refused
    assert problems("landlock", "data/token.py") == refused
    assert problems("landlock", "given/train.py") == problems("landlock", "by link/train.py") == []
    assert problems("landlock", "data/workspace/train.py") == []
    assert problems("off", "elsewhere/train.py") == []
    assert problems("landlock", "given/train.py", str(tmp_path / "given/5.pt")) == []
    wrong = problems("landlock", "given/train.py", str(tmp_path / "elsewhere/5.pt"))
    assert wrong == [("resumeFrom", "PATH_NOT_GIVEN")]


def test_ranks_can_open_their_checkpoints_and_the_resume_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the data directory is named by a link."""
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 4)
    (tmp_path / "disk").mkdir()
    (tmp_path / "fermi").symlink_to(tmp_path / "disk")
    for data in (tmp_path / "disk", tmp_path / "fermi"):
        backend = LocalBackend({"data_dir": str(data), "warm": False, "isolation": "landlock"})
        for resume, opened in (
            ("", []), ("checkpoints/task-y/5.pt", ["checkpoints/task-y"]), ("checkpoints", []),
            ("checkpoints/task-y", ["checkpoints/task-y"]), ("token", []), ("checkpoints/task-y/../../token", []),
        ):  # fmt: skip
            spec = replace(
                job("env-001"),
                checkpoint_dir=f"{data}/checkpoints/task-x",
                resume_from=f"{data}/{resume}" * bool(resume),
            )
            rendered = backend.render(spec, plugins.get_framework("ddp").plan(spec))
            [paths] = [one.content["confine"]["paths"] for one in rendered.artifacts if one.kind == "node"]
            tasks = {
                path: mode for path, mode in paths.items() if "/task-x" in path or "/task-y" in path or "token" in path
            }
            assert tasks == {
                f"{tmp_path}/disk/checkpoints/task-x": "rwm", **{f"{tmp_path}/disk/{path}": "r" for path in opened}
            }, (data, resume)  # fmt: skip


SAVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
print("ready", flush=True)
time.sleep(600)
"""


def start(folder: Path, node_rank: int, script: str, ranks: Sequence[int]) -> subprocess.Popen[bytes]:
    """A runner of a node `gn<5 + node_rank>` of the attempt in `folder`, once its ranks say that they are ready."""
    run_dir = folder / "runs" / "task-x-1"
    run_dir.mkdir(parents=True, exist_ok=True)
    logs = {rank: folder / f"{rank}.log" for rank in ranks}
    spec = {
        "name": "task-x-1", "node_rank": node_rank, "node": f"gn{5 + node_rank}",
        "command": [sys.executable, "-c", script], "cwd": str(folder), "env": {},
        "ranks": [{"rank": rank, "local_rank": rank, "env": {}, "log": str(log)} for rank, log in logs.items()],
        "stop_signal": "SIGTERM", "grace_seconds": 30,
    }  # fmt: skip
    path = str(run_dir / f"node-{node_rank}.json")
    files.write_json_atomically(path, spec)
    command = [sys.executable, "-m", "fermi.runner.node", path]
    runner = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(node.__file__).parents[2])})
    until(lambda: all(log.exists() and "ready" in log.read_text("utf-8") for log in logs.values()), what="handlers")
    return runner


def observed(folder: Path, ranks: int = 2) -> Observation:
    backend = LocalBackend({"data_dir": str(folder), "warm": False})
    return backend.observe([Handle("task-x-1", "task-x", 1, ranks)])["task-x-1"]


@pytest.mark.parametrize("code", [0, 143])
def test_an_end_requested_by_others_is_neither_success_nor_failure(tmp_path: Path, code: int) -> None:
    """A service manager, a shutdown: the runner gets SIGTERM. The platform asks by a file."""
    runner = start(tmp_path, 0, SAVES.format(code=code), [0, 1])
    runner.send_signal(signal.SIGTERM)
    runner.wait(60)
    seen = observed(tmp_path)
    assert (seen.phase, seen.left) == (Phase.FAILED, False)
    assert seen.cause is not None
    assert (seen.cause.code, seen.cause.params["node"]) == ("RUNNER_TERMINATED", "gn5")


LOSES_ITS_PEER = """
import os, time
print("ready", flush=True)
while not os.path.exists("gone"):
    time.sleep(0.01)
raise ConnectionError("connection closed by peer")
"""


@pytest.mark.parametrize("asked", [True, False])
def test_a_terminated_runner_explains_errors_of_its_peers(tmp_path: Path, asked: bool) -> None:
    """And not the other way round: who failed before anybody asked is the culprit."""
    runners = [start(tmp_path, 0, SAVES.format(code=143), [0]), start(tmp_path, 1, LOSES_ITS_PEER, [1])]
    order = runners if asked else runners[::-1]
    for runner in order:
        if runner is runners[0]:
            runner.send_signal(signal.SIGTERM)
        else:
            (tmp_path / "gone").touch()
        runner.wait(60)
    seen = observed(tmp_path)
    assert seen.cause is not None
    expected = ("RUNNER_TERMINATED", "gn5") if asked else ("RANK_FAILED", "gn6")
    assert (seen.cause.code, seen.cause.params["node"]) == expected


def test_an_external_stop_is_known_while_ranks_save(tmp_path: Path) -> None:
    runner = start(
        tmp_path, 0, LOSES_ITS_PEER.replace("import os", "import os, signal\nsignal.signal(15, int)\nimport os"), [0]
    )
    runner.send_signal(signal.SIGTERM)
    cause = until(lambda: observed(tmp_path, 1).cause, what="the request is seen")
    assert cause.code == "RUNNER_TERMINATED"
    (tmp_path / "gone").touch()
    runner.wait(60)


def test_a_module_is_found_in_the_workspace_or_installed(tmp_path: Path) -> None:
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    package = backend.workspace / "pkg"
    package.mkdir(parents=True)
    (package / "train.py").write_text("import torch.multiprocessing as mp\nmp.spawn(work)\n")
    (backend.workspace / "start").write_bytes(b"#!/bin/sh\npython train.py\n")

    def of(entrypoint: Entrypoint) -> tuple[list[str], bytes]:
        spec = job("env-001", entrypoint=entrypoint)
        return [one.code for one in backend.problems(spec)], backend.entry_text(spec, 1000)

    assert of(Entrypoint(module="pkg.train")) == ([], (package / "train.py").read_bytes())
    assert of(Entrypoint(module="pkg.trian")) == (["ENTRYPOINT_NOT_FOUND"], b"")
    assert of(Entrypoint(module="torch.utils.collect_env")) == ([], b"")
    assert of(Entrypoint("start")) == ([], b"#!/bin/sh\npython train.py\n")
    spec = job("env-001", entrypoint=Entrypoint(module="pkg.train", args=("--epochs", "3")))
    rendered = backend.render(spec, plugins.get_framework("ddp").plan(spec))
    [node] = [one.content for one in rendered.artifacts if one.kind == "node"]
    assert node["command"][1:] == ["-u", "-m", "pkg.train", "--epochs", "3"]


def test_a_script_in_an_environments_workspace_is_trained_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's first, and never one of another project's."""
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 4)
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False, "isolation": "landlock"})
    entry = Entrypoint("train.py")
    spec = replace(job("env-001", "env-002"), project="project-1", entrypoint=entry)

    def started(spec: JobSpec) -> tuple[str, set[str]]:
        rendered = backend.render(spec, plugins.get_framework("ddp").plan(spec))
        nodes = [one.content for one in rendered.artifacts if one.kind == "node"]
        [cwd] = {node["cwd"] for node in nodes}
        open_to = {
            path for path, mode in nodes[0]["confine"]["paths"].items() if "/environments/" in path and "w" in mode
        }
        return cwd, open_to

    assert [one.code for one in backend.problems(spec)] == ["ENTRYPOINT_NOT_FOUND"]
    assert started(spec) == (str(backend.workspace), set())
    for environment, project in (("env-002", "project-2"), ("env-002", "project-1"), ("env-001", "project-1")):
        disk = environment_runs.EnvironmentDisk.from_environment(tmp_path, environment)
        disk.make(project)
        files.write_json_atomically(str(disk.folder / "disk.json"), {"project": project})
        disk.workspace.mkdir(exist_ok=True)
        (disk.workspace / "train.py").write_text("print('here')")
        if project == "project-2":
            assert started(spec) == (str(backend.workspace), set())
            continue
        assert backend.problems(spec) == []
        assert started(spec) == (str(disk.workspace), {str(disk.workspace)})
    (environment_runs.EnvironmentDisk.from_environment(tmp_path, "env-001").workspace / "out.py").symlink_to(
        "/etc/hosts"
    )
    assert started(replace(spec, entrypoint=Entrypoint("out.py"))) == (str(backend.workspace), set())
    other = environment_runs.EnvironmentDisk.from_environment(tmp_path, "env-009")
    other.make("project-1")
    other.workspace.mkdir()
    (other.workspace / "train.py").write_text("print('not of this task')")
    assert started(replace(spec, entrypoint=Entrypoint("../../env-009/workspace/train.py")))[1] == set()


@pytest.mark.parametrize(
    ("name", "forks"),
    [
        ("GOMP_SPINCOUNT", False),
        ("ONEDNN_DEFAULT_FPMATH_MODE", False),
        ("KINETO_USE_DAEMON", False),
        ("PYTORCH_CUDA_ALLOC_CONF", False),
        ("CUDA_LAUNCH_BLOCKING", False),
        ("TRITON_INTERPRET", False),
        ("CUBLAS_LOGINFO_DBG", False),
        ("CXX", False),
        ("CUDA_VISIBLE_DEVICES", True),
        ("TRITON_CACHE_DIR", True),
        ("NCCL_DEBUG", True),
        ("CUBLAS_WORKSPACE_CONFIG", True),
        ("MY_LEARNING_RATE", True),
    ],
)
def test_ranks_are_executed_where_a_library_reads_a_variable_at_import(tmp_path: Path, name: str, forks: bool) -> None:
    assert forks_ranks(tmp_path, **{name: "1"}) is forks


@pytest.mark.parametrize(("threads", "forks"), [("4", True), ("4,2", False), ("", False)])
def test_forked_ranks_set_their_number_of_threads_themselves(tmp_path: Path, threads: str, forks: bool) -> None:
    assert forks_ranks(tmp_path, OMP_NUM_THREADS=threads) is forks


@pytest.mark.parametrize("warm", [True, False])
def test_ranks_that_cannot_use_what_stands_by_say_why(tmp_path: Path, warm: bool) -> None:
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": warm})
    for changes, why in (
        ({"env": {"TORCH_LOGS": "all"}}, "TORCH_LOGS: read when PyTorch is imported"),
        ({"python": "/opt/python"}, "the process that stands by has another Python than /opt/python"),
        ({}, None),
    ):
        spec = replace(job("env-001"), **changes)
        rendered = backend.render(spec, plugins.get_framework("ddp").plan(spec))
        assert rendered.artifacts[1].content.get("imports") == (why if warm else None)


def forks_ranks(tmp_path: Path, **env: str) -> bool:
    spec = replace(job("env-001"), env=env)
    rendered = LocalBackend({"data_dir": str(tmp_path), "warm": False}).render(
        spec, plugins.get_framework("ddp").plan(spec)
    )
    launch, first, *_ = (artifact.content for artifact in rendered.artifacts)
    assert bool(launch["preload"]) is first["fork"]
    return bool(first["fork"])


def test_ranks_have_the_gpus_of_their_environment(tmp_path: Path) -> None:
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    spec = job("env-001")
    [node] = spec.nodes
    for emulated, expected in ((False, "2,5"), (True, "")):
        mine = replace(node, gpu_count=2, emulated=emulated, engine={"gpus": [2, 5]})
        one = replace(spec, nodes=(mine,))
        rendered = backend.render(one, plugins.get_framework("ddp").plan(one))
        [env] = [artifact.content["env"] for artifact in rendered.artifacts if artifact.kind == "node"]
        assert env.get("CUDA_VISIBLE_DEVICES", "") == expected


def kept_here(data: Path, key: str, project: str = "nlp") -> environment_runs.EnvironmentDisk:
    """An environment that the platform keeps."""
    disk = environment_runs.EnvironmentDisk.from_environment(data, key)
    disk.make(project)
    for folder in (disk.home, disk.workspace):
        folder.mkdir()
    return disk


def made(disk: environment_runs.EnvironmentDisk, python: str = sys.executable) -> str:
    interpreter.make_interpreter(python, disk.own)
    return str(disk.own / "bin" / "python")


def nodes_of(backend: LocalBackend, spec: JobSpec) -> dict[str, Any]:
    """What is written down of each node, by the name of its environment."""
    spec, problems = run_location.choose_run_locations(spec, backend.find_run_locations(spec))
    assert not problems
    rendered = backend.render(spec, plugins.get_framework("ddp").plan(spec))
    return {one.content["node"]: one.content for one in rendered.artifacts if one.kind == "node"}


def test_ranks_run_with_packages_of_their_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was, the platform's interpreter has the same."""
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 4)
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False, "isolation": "landlock"})
    own, bare = kept_here(tmp_path, "env-001"), kept_here(tmp_path, "env-002")
    spec = replace(job("env-001", "env-002", "env-003"), project="nlp")
    first, second, plain = (node.name for node in spec.nodes)
    pythons = {first: made(own), second: made(bare)}
    (own.own / "lib/python3.11/site-packages/tiny-1.0.dist-info").mkdir(parents=True)
    found = nodes_of(backend, spec)
    assert [found[name]["fork"] for name in (first, second, plain)] == [True, True, True]
    assert [found[name].get("venv") for name in (first, second, plain)] == [str(own.own), None, None]
    assert found[first]["command"][0] == pythons[first] == found[first]["python"]
    assert found[second]["command"][0] == found[plain]["command"][0] == sys.executable
    assert [found[name]["env"].get("HOME") for name in (first, second, plain)] == [str(own.home), str(bare.home), None]
    reached = {name: found[name]["confine"]["paths"] for name in found}
    folders = {name: {path for path in paths if "/environments/" in path} for name, paths in reached.items()}
    assert folders[first] == {str(own.home), str(own.workspace)}
    assert folders[second] == {str(bare.home), str(bare.workspace)}
    assert folders[plain] == set()
    outside = nodes_of(backend, replace(spec, run_in="beside"))
    assert {one["command"][0] for one in outside.values()} == {sys.executable}


def test_another_projects_environment_is_only_used_outside(tmp_path: Path) -> None:
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    disk = kept_here(tmp_path, "env-001", project="vision")
    made(disk)
    (disk.own / "lib/python3.11/site-packages/tiny-1.0.dist-info").mkdir(parents=True)
    spec = replace(job("env-001"), project="nlp")
    [node] = run_location.choose_run_locations(spec, backend.find_run_locations(spec))[0].nodes
    assert node.way
    assert (node.way.inside, node.way.code) == (False, "INSIDE_OTHER_PROJECT")
    [content] = nodes_of(backend, spec).values()
    assert content["command"][0] == sys.executable
    assert "confine" not in content
    asked = replace(spec, run_in="environment")
    [problem] = run_location.choose_run_locations(asked, backend.find_run_locations(asked))[1]
    assert (problem.field, problem.code) == ("distributedConfig.runIn", "INSIDE_OTHER_PROJECT")


def test_a_replaced_interpreter_does_not_mislead_the_platform(tmp_path: Path) -> None:
    """It is neither run nor followed to a file: names in a folder are all that is looked at."""
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    disk = kept_here(tmp_path, "env-001")
    spec = replace(job("env-001"), project="nlp")
    python = disk.own / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    python.chmod(0o755)
    (disk.own / "lib/python3.11/site-packages").mkdir(parents=True)
    (disk.own / "lib/python3.11/site-packages/a").symlink_to("/dev/zero")
    os.mkfifo(disk.own / "lib/python3.11/site-packages/b-1.dist-info")
    [content] = nodes_of(backend, spec).values()
    assert content["command"][0] == str(python)
    [settled] = run_location.choose_run_locations(spec, backend.find_run_locations(spec))[0].nodes
    assert backend.find_missing_packages(settled, ["torch"]) == []
    (disk.home / ".fermi").rename(disk.home / "moved")
    (disk.home / ".fermi").symlink_to("/dev/zero")
    [content] = nodes_of(backend, spec).values()
    assert content["command"][0] == sys.executable
    assert not (tmp_path / "ran").exists()


def stands_in(folder: Path, text: str, name: str = "python") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def wrong_with(backend: LocalBackend, spec: JobSpec) -> list[tuple[str, str]]:
    settled, _ = run_location.choose_run_locations(spec, backend.find_run_locations(spec))
    return [(one.code, str(one.params.get("why", ""))) for one in backend.problems(settled)]


def test_an_unusable_interpreter_is_refused_before_the_start(tmp_path: Path) -> None:
    backend = LocalBackend({"data_dir": str(tmp_path / "data"), "warm": False, "isolation": "auto"})
    disk, other = (kept_here(tmp_path / "data", key) for key in ("env-001", "env-002"))
    spec = replace(job("env-001"), project="nlp")
    own = made(disk)

    def problems(python: str) -> list[tuple[str, str]]:
        return wrong_with(backend, replace(spec, python=python))

    assert problems(own) == problems(sys.executable) == problems("python3") == []
    assert problems(str(disk.home / "absent")) == [("PYTHON_NOT_FOUND", "")]
    assert problems(stands_in(disk.home / "old", "echo 3.8.19")) == [("PYTHON_TOO_OLD", "")]
    failed = stands_in(disk.home / "broken", "echo 'no libpython' >&2; exit 3")
    assert problems(failed) == [("PYTHON_NOT_USABLE", "no libpython")]
    (disk.home / "text").write_text("no program")
    [(code, why)] = problems(str(disk.home / "text"))
    assert (code, "ermission denied" in why) == ("PYTHON_NOT_USABLE", True)
    ran = tmp_path / "data" / "ran"
    reads = stands_in(disk.home / "reads", f"touch {ran}; cat {tmp_path}/data/secret; echo 3.11.0")
    (tmp_path / "data" / "secret").write_text("the platform's\n")
    if backend.isolation.protects:
        assert problems(reads) == []
        assert not ran.exists(), "whoever names it may have written it"
        assert problems(stands_in(other.home / "hidden", "echo 3.11.0")) == [("PYTHON_NOT_FOUND", "")]
    kernel = disk.home / ".local/share/jupyter/kernels/mine/kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps({"argv": [own, "-m", "ipykernel_launcher", "-f", "{connection_file}"]}))
    assert problems("mine") == []
    assert problems("nobodys") == [("PYTHON_NOT_FOUND", "")]
    [content] = nodes_of(backend, replace(spec, python="mine")).values()
    assert content["command"][0] == own
    bare = replace(spec, python=stands_in(disk.home / "bare", f'exec {sys.executable} -S -E "$@"'))
    settled, _ = run_location.choose_run_locations(bare, backend.find_run_locations(bare))
    assert backend.find_missing_packages(settled.nodes[0], ["torch"], settled) == ["torch"]
    [content] = nodes_of(backend, bare).values()
    assert (content["command"][0], content["fork"]) == (bare.python, False)
