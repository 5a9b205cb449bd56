"""A run of an environment as a container: the spec of its environment daemon, the engine's command line, and the
meaning of its end. Pure.

    in the container            on the host
    /fermi/code/fermi           the agent's own `fermi`, read only
    /fermi/told                 runs/<number>/, read only: stop.json
    /fermi/run                  runs/<number>/inside/: keeper.json, .lock, .status.json, .log, .sock, .token, service/
    /home/fermi, …/work         home/, workspace/: the disk

Its paths are those of an environment on Kubernetes, so a template means the same on both. All processes in it run as
one user and may write to /fermi/run: the host trusts no content there, follows no link there, and keeps its own record.
The environment daemon is the first process of a PID namespace, and nothing in it outlives the daemon.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fermi
from fermi.engines.environments import HostedSpec
from fermi.engines.local.container_engines import Done, Engine, held_to
from fermi.jobs import bounds
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause
from fermi.runner import files

CODE, TOLD, RUN, HOME = "/fermi/code", "/fermi/told", "/fermi/run", "/home/fermi"
WORK = f"{HOME}/work"
PYTHON = "python3"
OLD_PYTHON = 96
"""Exit code of an environment daemon whose interpreter is too old."""
BEGIN = (
    "import sys; old = sys.version_info < (3, 11); "
    f"old and (print(sys.version.split()[0]), sys.exit({OLD_PYTHON})); "
    f"import runpy; sys.argv = ['keeper', '{RUN}/keeper.json', '{RUN}/{files.SECRETS}']; "
    "runpy.run_module('fermi.envd', run_name='__main__')"
)
RUN_LABEL, ENVIRONMENT, DATA = "io.fermi.run", "io.fermi.environment", "io.fermi.data"
"""Labels: only containers that have all of them, with our own values, are ever ended or removed."""
MOST_PROCESSES = 1 << 14
LOG_SIZE = "1m"
SHOWN = '{"labels": {{json .Config.Labels}}, "state": {{json .State}}}'


@dataclass(frozen=True, slots=True)
class Box:
    """Names and folders of a container. `data`: the data directory, by which containers of several agents on one host
    are told apart."""

    name: str
    environment: str
    data: Path
    folder: Path
    workspace: Path
    home: Path

    @property
    def inside(self) -> Path:
        """Folder that the container can write to."""
        return self.folder / "inside"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the container."""
        return {RUN_LABEL: self.name, ENVIRONMENT: self.environment, DATA: str(self.data)}


def content(
    spec: HostedSpec, env: Mapping[str, str], grace_seconds: float, ordered: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is kept of the run on the host; `keeper` is the spec of its environment daemon. `limits`: see
    `bounds.order`."""
    given: Any = [] if spec.emulated or not spec.gpu_count else list(spec.gpus) or "all"
    variables = {"HOME": HOME, "USER": "fermi", **({} if given else {"CUDA_VISIBLE_DEVICES": ""}), **env}
    keeper = {
        "name": spec.run_name, "node_rank": 0, "project": spec.project, "kind": spec.kind, "image": spec.image,
        "workspace": WORK, "home": HOME, "service": f"{RUN}/service",
        "cache": f"{HOME}/.cache/fermi", "tools": f"{HOME}/.local/fermi",
        "python": PYTHON, "lab": PYTHON, "packages": list(spec.packages),
        "env": variables, "ports": [{"name": port.name, "port": port.port} for port in spec.ports],
        "start_script": spec.start_script, "lazy": False, "foreground": True, "stop": f"{TOLD}/stop.json",
        "grace_seconds": grace_seconds, **bounds.of_environment(ordered, spec.disk_gb, contained=True),
    }  # fmt: skip
    sizes = {"cpus": spec.cpu_cores, "memory_gb": spec.memory_gb,
             "shared_memory_gb": spec.shared_memory_gb or max(1, spec.memory_gb // 2)}  # fmt: skip
    container = {"image": spec.image, "gpus": given, **sizes}
    return {"name": spec.run_name, "node_rank": 0, "project": spec.project, "lazy": False, "container": container,
            "keeper": keeper}  # fmt: skip


def command(engine: Engine, box: Box, wanted: Mapping[str, Any]) -> list[str]:
    """Return the command that runs the container. Neither variables nor secrets of the environment are on the command
    line: any process of the host can read it."""
    words = ["run", "--detach", "--name", box.name, "--pull=never", f"--user={engine.user()}", "--workdir=/"]
    words += ["--network=host", "--cap-drop=all", "--security-opt=no-new-privileges", "--security-opt=label=disable"]
    words += [*_habits(engine), *_limits(engine, wanted), *_gpus(engine, wanted["gpus"])]
    mounts = [
        (Path(fermi.__file__).parent, f"{CODE}/fermi", True),
        (box.folder, TOLD, True),
        (box.inside, RUN, False),
        (box.home, HOME, False),
        (box.workspace, WORK, False),
    ]
    for source, target, fixed in mounts:
        words += ["--mount", f"type=bind,source={source},target={target}" + (",readonly" if fixed else "")]
    for name, value in {"PYTHONPATH": CODE, "PYTHONUNBUFFERED": "1", "HOME": HOME, "USER": "fermi"}.items():
        words += ["--env", f"{name}={value}"]
    for name, value in box.labels.items():
        words += ["--label", f"{name}={value}"]
    return [*words, f"--entrypoint={PYTHON}", wanted["image"], "-u", "-c", BEGIN]


def _habits(engine: Engine) -> list[str]:
    """Return options against what an image or the engine's settings would run, or pass on, beside what is requested
    here."""
    if engine.name == "podman":
        return ["--env-host=false", "--no-healthcheck", "--log-driver=k8s-file", f"--log-opt=max-size={LOG_SIZE}b"]
    remaps = ["--userns=host"] if engine.remaps else []
    return ["--no-healthcheck", "--log-driver=json-file", f"--log-opt=max-size={LOG_SIZE}", *remaps]


def _limits(engine: Engine, wanted: Mapping[str, Any]) -> list[str]:
    found = [f"--shm-size={wanted['shared_memory_gb']}g"]
    each = {"cpu": f"--cpus={wanted['cpus']}", "memory": f"--memory={wanted['memory_gb']}g",
            "pids": f"--pids-limit={MOST_PROCESSES}"}  # fmt: skip
    return [*found, *(each[name] for name in sorted(engine.limits)), *(held_to() if engine.name == "podman" else ())]


def _gpus(engine: Engine, given: Any) -> list[str]:
    """Return the options of GPUs. An image may name GPUs for itself in NVIDIA_VISIBLE_DEVICES, and a runtime of
    NVIDIA's would give it these."""
    if engine.name == "podman":
        devices = [f"--device=nvidia.com/gpu={one}" for one in (["all"] if given == "all" else given)]
        return ["--env=NVIDIA_VISIBLE_DEVICES=void", *devices]
    if given == "all":
        return ["--gpus=all"]
    return ['--gpus="device={}"'.format(",".join(map(str, given)))] if given else ["--env=NVIDIA_VISIBLE_DEVICES=void"]


@dataclass(frozen=True, slots=True)
class State:
    """State of a container as an engine reports it. `ours`: it has our labels; `begun`: it ran, or runs; `code`: exit
    code of one that is over."""

    ours: bool
    begun: bool
    runs: bool
    code: int = 0
    out_of_memory: bool = False


def state(said: str, box: Box) -> State:
    """Return the state from the output of `inspect` in the form of INSPECT_FORMAT. An unknown state counts as running:
    nothing is done because of it."""
    found = json.loads(said)
    labels, about = found.get("labels") or {}, found.get("state") or {}
    ours = all(labels.get(name) == value for name, value in box.labels.items())
    word = str(about.get("Status") or "").lower()
    begun = word not in ("created", "configured")
    over = word in ("exited", "stopped", "dead")
    return State(ours, begun, begun and not over, int(about.get("ExitCode") or 0), bool(about.get("OOMKilled")))


def refused(engine: Engine, box: Box, image: str, done: Done) -> BackendError:
    """Return the error of a `run` that failed. Exit codes as podman-run(1) and docker-run(1) have them: 125 the engine
    itself, 126 a command that cannot be run, 127 one that does not exist; 126 is also a runtime's own failure."""
    said = done.err.lower()
    if done.code == 127 and PYTHON in said:
        return BackendError("IMAGE_WITHOUT_PYTHON", permanent=True, image=image, found="–")
    if "nvidia.com/gpu" in said or "cdi device" in said or "capabilities: [[gpu]]" in said:
        return BackendError("CONTAINER_GPUS_UNKNOWN", permanent=True, engine=engine.name, evidence=done.why)
    if "already in use" in said:
        return BackendError("CONTAINER_NAME_TAKEN", name=box.name, engine=engine.name)
    if "no space left" in said or "disk quota" in said:
        return BackendError("IMAGE_NO_ROOM", image=image, evidence=done.why)
    return BackendError("CONTAINER_NOT_STARTED", permanent=True, image=image, evidence=done.why)


def cause_of(seen: State, wanted: Mapping[str, Any], printed: Sequence[str], *, told: bool) -> Cause:
    """Return why a container ended whose environment daemon did not report it. `log_lines`: its last lines;
    `has_started`: its daemon had started."""
    last = printed[-1] if printed else str(seen.code)
    if seen.out_of_memory:
        return Cause("CONTAINER_OUT_OF_MEMORY", {"image": wanted["image"], "memory": wanted["memory_gb"]})
    if told:
        return Cause("KEEPER_LOST", {})
    if seen.code == OLD_PYTHON:
        return Cause("IMAGE_WITHOUT_PYTHON", {"image": wanted["image"], "found": f"Python {last}"})
    if seen.code == 127:
        return Cause("IMAGE_WITHOUT_PYTHON", {"image": wanted["image"], "found": "–"})
    return Cause("CONTAINER_NOT_STARTED", {"image": wanted["image"], "evidence": last})
