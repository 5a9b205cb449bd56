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
from fermi.engines.environments import EnvironmentSpec
from fermi.engines.local.container_engines import CommandResult, ContainerEngine, build_ulimit_options
from fermi.jobs import bounds
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause
from fermi.runner import files

CODE_DIR, CONTROL_DIR, RUN_DIR, HOME_DIR = "/fermi/code", "/fermi/told", "/fermi/run", "/home/fermi"
WORKSPACE_DIR = f"{HOME_DIR}/work"
CONTAINER_PYTHON = "python3"
OLD_PYTHON_EXIT_CODE = 96
"""Exit code of an environment daemon whose interpreter is too old."""
START_PROGRAM = (
    "import sys; old = sys.version_info < (3, 11); "
    f"old and (print(sys.version.split()[0]), sys.exit({OLD_PYTHON_EXIT_CODE})); "
    f"import runpy; sys.argv = ['keeper', '{RUN_DIR}/keeper.json', '{RUN_DIR}/{files.SECRETS_NAME}']; "
    "runpy.run_module('fermi.envd', run_name='__main__')"
)
RUN_LABEL, ENVIRONMENT_LABEL, DATA_LABEL = "io.fermi.run", "io.fermi.environment", "io.fermi.data"
"""Labels: only containers that have all of them, with our own values, are ever ended or removed."""
MAX_PROCESSES = 1 << 14
MAX_LOG_SIZE = "1m"
INSPECT_FORMAT = '{"labels": {{json .Config.Labels}}, "state": {{json .State}}}'


@dataclass(frozen=True, slots=True)
class ContainerSpec:
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
        return {RUN_LABEL: self.name, ENVIRONMENT_LABEL: self.environment, DATA_LABEL: str(self.data)}


def render_container(
    spec: EnvironmentSpec, env: Mapping[str, str], grace_seconds: float, limits: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is kept of the run on the host; `keeper` is the spec of its environment daemon. `limits`: see
    `bounds.order`."""
    given: Any = [] if spec.emulated or not spec.gpu_count else list(spec.gpus) or "all"
    variables = {"HOME": HOME_DIR, "USER": "fermi", **({} if given else {"CUDA_VISIBLE_DEVICES": ""}), **env}
    keeper = {
        "name": spec.run_name, "node_rank": 0, "project": spec.project, "kind": spec.kind, "image": spec.image,
        "workspace": WORKSPACE_DIR, "home": HOME_DIR, "service": f"{RUN_DIR}/service",
        "cache": f"{HOME_DIR}/.cache/fermi", "tools": f"{HOME_DIR}/.local/fermi",
        "python": CONTAINER_PYTHON, "lab": CONTAINER_PYTHON, "packages": list(spec.packages),
        "env": variables, "ports": [{"name": port.name, "port": port.port} for port in spec.ports],
        "start_script": spec.start_script, "lazy": False, "foreground": True, "stop": f"{CONTROL_DIR}/stop.json",
        "grace_seconds": grace_seconds, **bounds.build_environment_bounds(limits, spec.disk_gb, contained=True),
    }  # fmt: skip
    sizes = {"cpus": spec.cpu_cores, "memory_gb": spec.memory_gb,
             "shared_memory_gb": spec.shared_memory_gb or max(1, spec.memory_gb // 2)}  # fmt: skip
    container = {"image": spec.image, "gpus": given, **sizes}
    return {"name": spec.run_name, "node_rank": 0, "project": spec.project, "lazy": False, "container": container,
            "keeper": keeper}  # fmt: skip


def build_run_command(engine: ContainerEngine, container: ContainerSpec, settings: Mapping[str, Any]) -> list[str]:
    """Return the command that runs the container. Neither variables nor secrets of the environment are on the command
    line: any process of the host can read it."""
    words = ["run", "--detach", "--name", container.name, "--pull=never", f"--user={engine.user()}", "--workdir=/"]
    words += ["--network=host", "--cap-drop=all", "--security-opt=no-new-privileges", "--security-opt=label=disable"]
    words += [
        *_build_engine_options(engine),
        *_build_limit_options(engine, settings),
        *_build_gpu_options(engine, settings["gpus"]),
    ]
    mounts = [
        (Path(fermi.__file__).parent, f"{CODE_DIR}/fermi", True),
        (container.folder, CONTROL_DIR, True),
        (container.inside, RUN_DIR, False),
        (container.home, HOME_DIR, False),
        (container.workspace, WORKSPACE_DIR, False),
    ]
    for source, target, fixed in mounts:
        words += ["--mount", f"type=bind,source={source},target={target}" + (",readonly" if fixed else "")]
    for name, value in {"PYTHONPATH": CODE_DIR, "PYTHONUNBUFFERED": "1", "HOME": HOME_DIR, "USER": "fermi"}.items():
        words += ["--env", f"{name}={value}"]
    for name, value in container.labels.items():
        words += ["--label", f"{name}={value}"]
    return [*words, f"--entrypoint={CONTAINER_PYTHON}", settings["image"], "-u", "-c", START_PROGRAM]


def _build_engine_options(engine: ContainerEngine) -> list[str]:
    """Return options against what an image or the engine's settings would run, or pass on, beside what is requested
    here."""
    if engine.name == "podman":
        return ["--env-host=false", "--no-healthcheck", "--log-driver=k8s-file", f"--log-opt=max-size={MAX_LOG_SIZE}b"]
    remaps = ["--userns=host"] if engine.remaps_users else []
    return ["--no-healthcheck", "--log-driver=json-file", f"--log-opt=max-size={MAX_LOG_SIZE}", *remaps]


def _build_limit_options(engine: ContainerEngine, settings: Mapping[str, Any]) -> list[str]:
    found = [f"--shm-size={settings['shared_memory_gb']}g"]
    each = {"cpu": f"--cpus={settings['cpus']}", "memory": f"--memory={settings['memory_gb']}g",
            "pids": f"--pids-limit={MAX_PROCESSES}"}  # fmt: skip
    return [
        *found,
        *(each[name] for name in sorted(engine.limits)),
        *(build_ulimit_options() if engine.name == "podman" else ()),
    ]


def _build_gpu_options(engine: ContainerEngine, gpus: Any) -> list[str]:
    """Return the options of GPUs. An image may name GPUs for itself in NVIDIA_VISIBLE_DEVICES, and a runtime of
    NVIDIA's would give it these."""
    if engine.name == "podman":
        devices = [f"--device=nvidia.com/gpu={one}" for one in (["all"] if gpus == "all" else gpus)]
        return ["--env=NVIDIA_VISIBLE_DEVICES=void", *devices]
    if gpus == "all":
        return ["--gpus=all"]
    return ['--gpus="device={}"'.format(",".join(map(str, gpus)))] if gpus else ["--env=NVIDIA_VISIBLE_DEVICES=void"]


@dataclass(frozen=True, slots=True)
class ContainerState:
    """State of a container as an engine reports it. `ours`: it has our labels; `begun`: it ran, or runs; `code`: exit
    code of one that is over."""

    ours: bool
    begun: bool
    runs: bool
    code: int = 0
    out_of_memory: bool = False


def parse_state(output: str, container: ContainerSpec) -> ContainerState:
    """Return the state from the output of `inspect` in the form of INSPECT_FORMAT. An unknown state counts as running:
    nothing is done because of it."""
    found = json.loads(output)
    labels, about = found.get("labels") or {}, found.get("state") or {}
    ours = all(labels.get(name) == value for name, value in container.labels.items())
    word = str(about.get("Status") or "").lower()
    begun = word not in ("created", "configured")
    over = word in ("exited", "stopped", "dead")
    return ContainerState(
        ours, begun, begun and not over, int(about.get("ExitCode") or 0), bool(about.get("OOMKilled"))
    )


def build_run_error(
    engine: ContainerEngine, container: ContainerSpec, image: str, result: CommandResult
) -> BackendError:
    """Return the error of a `run` that failed. Exit codes as podman-run(1) and docker-run(1) have them: 125 the engine
    itself, 126 a command that cannot be run, 127 one that does not exist; 126 is also a runtime's own failure."""
    said = result.err.lower()
    if result.code == 127 and CONTAINER_PYTHON in said:
        return BackendError("IMAGE_WITHOUT_PYTHON", permanent=True, image=image, found="–")
    if "nvidia.com/gpu" in said or "cdi device" in said or "capabilities: [[gpu]]" in said:
        return BackendError("CONTAINER_GPUS_UNKNOWN", permanent=True, engine=engine.name, evidence=result.why)
    if "already in use" in said:
        return BackendError("CONTAINER_NAME_TAKEN", name=container.name, engine=engine.name)
    if "no space left" in said or "disk quota" in said:
        return BackendError("IMAGE_NO_ROOM", image=image, evidence=result.why)
    return BackendError("CONTAINER_NOT_STARTED", permanent=True, image=image, evidence=result.why)


def find_end_cause(
    ended_state: ContainerState, settings: Mapping[str, Any], log_lines: Sequence[str], *, has_started: bool
) -> Cause:
    """Return why a container ended whose environment daemon did not report it. `log_lines`: its last lines;
    `has_started`: its daemon had started."""
    last = log_lines[-1] if log_lines else str(ended_state.code)
    if ended_state.out_of_memory:
        return Cause("CONTAINER_OUT_OF_MEMORY", {"image": settings["image"], "memory": settings["memory_gb"]})
    if has_started:
        return Cause("KEEPER_LOST", {})
    if ended_state.code == OLD_PYTHON_EXIT_CODE:
        return Cause("IMAGE_WITHOUT_PYTHON", {"image": settings["image"], "found": f"Python {last}"})
    if ended_state.code == 127:
        return Cause("IMAGE_WITHOUT_PYTHON", {"image": settings["image"], "found": "–"})
    return Cause("CONTAINER_NOT_STARTED", {"image": settings["image"], "evidence": last})
