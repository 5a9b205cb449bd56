"""What ranks and environments may reach on Slurm's nodes: the order, and a runner that carries it out."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.environments import EnvironmentSpec
from fermi.engines.slurm import sandbox as slurm_sandbox
from fermi.jobs.spec import Entrypoint, JobSpec
from fermi.planning import plugins
from fermi.runner import mounts, node, sandbox
from tests.goldens import job
from tests.platform_process import free_port

PLATFORM = Path(node.__file__).parents[2]
CONNECTION = {"folder": "/shared/fermi"}


def order(spec: JobSpec, **connection: Any) -> dict[str, Any] | None:
    plan = plugins.get_framework(spec.framework).plan(spec)
    rendered = plugins.get_backend("slurm", {**CONNECTION, **connection}).render(spec, plan)
    found: dict[str, Any] = next(one.content for one in rendered.artifacts if one.name == "node-0")
    return found.get("confine")


def test_a_task_gets_only_its_own_folders_of_the_data_directory() -> None:
    spec = replace(
        job("env-001"), project="nlp", attempt=2, checkpoint_dir="/shared/fermi/checkpoints/task-x",
        output_dir="/shared/fermi/outputs/task-x", resume_from="/shared/fermi/checkpoints/task-y/step-9",
        files_dir="/shared/fermi/files/nlp",
    )  # fmt: skip
    found = order(spec, reads=["/archive"], writes=["/scratch/nlp"])
    assert found
    below = {path: mode for path, mode in found["paths"].items() if path.startswith("/shared/fermi")}
    run = f"/shared/fermi/runs/{spec.name}"
    assert below == {
        "/shared/fermi": "", "/shared/fermi/datasets": "r", run: "r", "/shared/fermi/files/nlp": "r",
        "/shared/fermi/checkpoints/task-y": "r", f"/shared/fermi/logs/{spec.task_id}/2": "rw",
        "/shared/fermi/workspace": "rwm", "/shared/fermi/checkpoints/task-x": "rwm",
        "/shared/fermi/outputs/task-x": "rwm", "/shared/fermi/homes/nlp": "rwm",
    }  # fmt: skip
    assert (found["paths"]["/archive"], found["paths"]["/scratch/nlp"]) == ("r", "rwm")
    assert {path for path, mode in found["paths"].items() if "w" in mode} == {
        path for path, mode in below.items() if "w" in mode
    } | {"/scratch/nlp"}
    assert (found["home"], found["view"], found["optional"]) == ("/shared/fermi/homes/nlp", True, True)


def test_compiled_kernels_of_a_project_may_lie_on_the_nodes_own_disk() -> None:
    spec = replace(job("env-001"), project="nlp", env={"FERMI_NODE_CACHE_DIR": "/etc"})
    plan = plugins.get_framework(spec.framework).plan(spec)
    connection: dict[str, Any] = {**CONNECTION, "node_cache_dir": "/local/fermi/", "writes": ["/scratch"]}
    rendered = plugins.get_backend("slurm", connection).render(spec, plan)
    found = next(one.content for one in rendered.artifacts if one.name == "node-0")
    assert found["env"]["FERMI_NODE_CACHE_DIR"] == "/local/fermi/nlp"
    paths = found["confine"]["paths"]
    assert (paths["/local/fermi/nlp"], paths["/scratch"]) == ("rwm", "rwm")
    assert "/local/fermi" not in paths, "other projects' kernels are not given"


@pytest.mark.parametrize(
    ("framework", "env", "given"),
    [("deepspeed", {}, True), ("ddp", {}, False), ("deepspeed", {"TORCH_EXTENSIONS_DIR": "/x"}, False)],
)
def test_a_task_may_write_only_to_its_build_folder_of_the_plans_files(
    framework: str, env: dict[str, str], given: bool
) -> None:
    spec = replace(job("env-001"), framework=framework, env=env)
    found = order(spec)
    assert found
    folder = f"/shared/fermi/runs/{spec.name}/files/torch_extensions"
    assert (found["paths"].get(folder) == "rwm", folder in found["own"]) == (given, given)


@pytest.mark.parametrize("off", [{"confine": False}, {"isolation": "off"}])
def test_disabled_sandboxes_are_not_requested(off: dict[str, Any]) -> None:
    assert order(job("env-001"), **off) is None
    told = dict.fromkeys(("workspace", "home", "service", "tools", "cache"), "/shared/fermi/x")
    assert slurm_sandbox.confine_environment(told, "/shared/fermi", off, "/shared/fermi/x/modules") == {}
    assert order(job("env-001"), isolation="off", confine=True)


def test_a_container_is_readable_except_home_and_mounts() -> None:
    container = {"runtime": "pyxis", "image": "x", "mounts": ["/lustre/data:/data", "/models"]}
    found = order(job("env-001"), container=container)
    assert found
    assert (found["paths"]["/"], found["paths"]["~"], found["paths"]["/shared/fermi"]) == ("r", "", "")
    assert (found["paths"]["/dev"], found["paths"]["/tmp"]) == ("", "")
    assert (found["paths"]["/data"], found["paths"]["/models"], found["view"]) == ("rwm", "rwm", False)


@pytest.mark.parametrize(
    ("script", "allowed"),
    [
        ("train.py", True), ("../token", False), ("/home/alice/train.py", False), ("/scratch/train.py", True),
        ("/shared/fermi/workspace/a/train.py", True), ("/shared/fermi/secret_key", False),
        ("/shared/fermi2/x.py", False), ("/scratch/../root/x.py", False), ("/archive/x.py", True),
    ],
)  # fmt: skip
def test_an_unreadable_script_is_refused_by_name(script: str, allowed: bool) -> None:
    backend = plugins.get_backend("slurm", {**CONNECTION, "reads": ["/archive"]})
    codes = [one.code for one in backend.problems(replace(job("env-001"), entrypoint=Entrypoint(script)))]
    assert codes == ([] if allowed else ["SLURM_PATH_NOT_GIVEN"])
    off = plugins.get_backend("slurm", {**CONNECTION, "confine": False})
    assert not off.problems(replace(job("env-001"), entrypoint=Entrypoint(script)))


def test_an_environment_gets_its_disk_and_its_package_cache() -> None:
    spec = EnvironmentSpec("environment-x", "x", "nlp", 1, disk_gb=20)
    rendered = plugins.get_environment_backend("slurm", {**CONNECTION}).render(spec)
    told = next(one.content for one in rendered.artifacts if one.kind == "keeper")
    assert told["bounds"]["disk"] == 20 * 2**30
    disk, cache = "/shared/fermi/slurm-environments/environment-x", told["cache"]
    assert told["confine"]["paths"][f"{disk}/home"] == told["confine"]["paths"][f"{disk}/workspace"] == "rwm"
    assert (told["confine"]["paths"]["/shared/fermi"], told["confine"]["paths"][cache]) == ("", "r")
    assert told["preparing"]["paths"][cache] == "rwm"
    assert f"{disk}/runs/1" not in told["confine"]["paths"], "the keeper's own folder"


# --- carried out by a runner ---

SCRIPT = """import json, os, sys
def tried(attempt):
    try:
        attempt()
        return True
    except OSError:
        return False
aims = json.loads(sys.argv[1])
for path in aims["write"]:
    tried(lambda: open(os.path.join(path, "w"), "w").close())
print(json.dumps({
    "read": [path for path in aims["read"] if tried(lambda: open(path).read())],
    "home": os.environ["HOME"],
}))
"""


def run(tmp_path: Path, missing: str = "") -> tuple[dict[str, Any], str]:
    """What a rank got at, and its whole log. `missing`: lines that take something from the node's kernel."""
    folder = tmp_path / "data"
    for name in ("workspace", "logs/task-x/1", "runs/task-x-1", "datasets", "checkpoints/other"):
        (folder / name).mkdir(parents=True)
    for name in ("token", "checkpoints/other/weights", "datasets/d"):
        (folder / name).write_text("x")
    (folder / "workspace/probe.py").write_text(SCRIPT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    spec = replace(
        job("env-001"), task_id="task-x", attempt=1, project="p", checkpoint_dir=f"{folder}/checkpoints/task-x"
    )
    log = folder / "logs/task-x/1/0.log"
    aims = {
        "write": [str(folder), str(folder / "runs/task-x-1"), str(elsewhere), f"{folder}/checkpoints/task-x",
                  f"{folder}/workspace"],
        "read": [f"{folder}/{name}" for name in ("token", "checkpoints/other/weights", "datasets/d")],
    }  # fmt: skip
    told = {
        "name": "task-x-1", "node_rank": 0, "node": "a", "cwd": f"{folder}/workspace", "env": {}, "port": free_port(),
        "command": [sys.executable, "probe.py", json.dumps(aims)], "stop_signal": "SIGTERM", "grace_seconds": 5,
        "ranks": [{"rank": 0, "local_rank": 0, "env": {}, "log": str(log)}],
        "confine": order(spec, folder=str(folder), task_reads=[]),
    }  # fmt: skip
    place = folder / "runs/task-x-1"
    asked = {"name": "task-x-1", "nodes": 1, "names": ["a"], "hosts": [], "port": told["port"], "files": {}}
    (place / "order.json").write_text(json.dumps(asked))
    (place / "node-0.json").write_text(json.dumps(told))
    program = (
        f"import sys\nfrom fermi.runner import mounts, sandbox, slurm\n{missing}\nsys.exit(slurm.main({str(place)!r}))"
    )
    env = {**os.environ, "PYTHONPATH": str(PLATFORM), "SLURM_PROCID": "0", "FERMI_HEAD": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, timeout=60, check=False, cwd="/")
    text = log.read_text()
    assert done.returncode == 0, text
    found = json.loads(text.splitlines()[-1])
    found["write"] = [path for path in aims["write"] if os.path.exists(f"{path}/w")]  # not only in the view's /tmp
    return found, text


NO_VIEW = (
    "def refuse(*_): raise mounts.ViewError(1, 'a user namespace: Operation not permitted')\nmounts.make_view = refuse"
)
NO_LANDLOCK = "sandbox.read_landlock_abi = lambda: 0"


def can_view(tmp_path: Path) -> bool:
    try:
        mounts.make_view(sandbox.resolve_paths(sandbox.build_system_paths()), (), str(tmp_path)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("missing", ["", NO_VIEW, NO_LANDLOCK], ids=["all", "no mount namespace", "no Landlock"])
def test_either_sandbox_confines_a_rank_to_its_own_files(tmp_path: Path, missing: str) -> None:
    if missing != NO_LANDLOCK and not sandbox.read_landlock_abi():
        pytest.skip("this kernel has no Landlock, or it is turned off")
    if missing == NO_LANDLOCK and not can_view(tmp_path):
        pytest.skip("no mount namespace can be made here")
    found, text = run(tmp_path, missing)
    data = tmp_path / "data"
    assert found["write"] == [f"{data}/checkpoints/task-x", f"{data}/workspace"]
    assert found["read"] == [f"{data}/datasets/d"]
    assert found["home"] == f"{data}/homes/p"
    if missing:
        assert "this machine cannot keep ranks from all that is not theirs" in text


def test_on_a_node_without_sandboxes_a_rank_runs_and_logs_what_is_missing(tmp_path: Path) -> None:
    _, text = run(tmp_path, f"{NO_VIEW}\n{NO_LANDLOCK}")
    said = text.splitlines()[0]
    assert said.startswith("fermi: this machine cannot keep ranks from all that is not theirs: ")
    assert "a user namespace: Operation not permitted" in said
    assert "no Landlock" in said


def test_a_machine_that_must_confine_starts_no_rank_without_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 0)
    asked = {"own": [], "home": str(tmp_path / "home"), "paths": {}, "landlock": True}
    for optional, fails in ((True, False), (False, True)):
        made = sandbox.Sandbox({**asked, "optional": optional}, "x", {"TMPDIR": str(tmp_path)})
        assert (made.failure is not None, bool(made.gaps)) == (fails, not fails)
        made.close()


def test_caches_of_compiled_kernels_are_in_the_home_directory(tmp_path: Path) -> None:
    """Of torch and Triton, which both look for them when they are imported: that is the runner's home."""
    home = tmp_path / "home"
    made = sandbox.Sandbox({"own": [], "home": str(home)}, "x", {"TMPDIR": str(tmp_path)})
    assert (made.env["HOME"], made.env["TRITON_HOME"]) == (str(home), str(home))
    assert made.env["TORCHINDUCTOR_CACHE_DIR"].startswith(f"{home}/")
    made.close()


def test_a_home_directory_that_cannot_be_created_is_a_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    asked = {"own": [], "home": str(tmp_path / "file" / "home"), "optional": True}
    made = sandbox.Sandbox(asked, "x", {"TMPDIR": str(tmp_path)})
    assert made.env["HOME"] == made.temporary
    assert made.failure is None
    made.close()
