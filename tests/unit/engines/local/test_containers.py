"""Which engine a host has, what its words become for each engine, and what refusals mean."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.environments import EnvironmentSpec
from fermi.engines.local import container_engines, containers, images
from fermi.engines.local.container_engines import CommandResult, ContainerEngine
from fermi.jobs import bounds
from tests.podman import Podman

DOCKER = {"ServerVersion": "27.1", "MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True,
          "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"]}  # fmt: skip


def docker(folder: Path, info: dict[str, Any], code: int = 0) -> None:
    """As docker-info(1): without its daemon the client says so, and some releases end with 0."""
    program = folder / "docker"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint({json.dumps(json.dumps(info))})\nsys.exit({code})\n")
    program.chmod(0o755)


def words(engine: ContainerEngine, **about: Any) -> list[str]:
    spec = EnvironmentSpec("env-a", "a", "p", 1, image="img:1", **about)
    box = containers.ContainerSpec("env-a-1", "env-a", Path("/d"), Path("/d/r"), Path("/d/w"), Path("/d/h"))
    return containers.build_run_command(
        engine, box, containers.render_container(spec, {}, 10.0, bounds.build_bounds({}, shared=True))["container"]
    )


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_podman_counts_as_available_once_it_has_run_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman = Podman(tmp_path / "podman")
    monkeypatch.setenv("PATH", str(podman.folder / "bin"))
    podman.says(rootfs=[126, "crun: cgroups in hybrid mode not supported: OCI runtime error"])
    assert container_engines.find_container_engine(tmp_path / "a") is None
    podman.says(rootfs=[126, "crun: the requested cgroup controller `memory` is not available"], limits=True)
    without = container_engines.find_container_engine(tmp_path / "c")
    assert without
    assert without.limits == frozenset(), "it runs containers, and holds them to nothing"
    podman.says()
    assert container_engines.find_container_engine(tmp_path / "a") is None, (
        "it is looked for again in a while, not each time"
    )
    found = container_engines.find_container_engine(tmp_path / "b")
    assert found
    assert (found.words, found.maps_root_to_user, sorted(found.limits)) == (
        "podman 4.3.1",
        True,
        ["cpu", "memory", "pids"],
    )


def test_docker_counts_as_available_when_its_daemon_answers(path: Path, tmp_path: Path) -> None:
    docker(path, {"ServerErrors": ["Cannot connect to the Docker daemon"], "ServerVersion": ""})
    assert container_engines.find_container_engine(tmp_path / "a") is None
    docker(path, DOCKER, code=1)
    assert container_engines.find_container_engine(tmp_path / "b") is None
    docker(path, DOCKER)
    found = container_engines.find_container_engine(tmp_path / "c")
    assert found
    assert (found.words, found.maps_root_to_user, found.remaps_users) == ("docker 27.1", False, False)
    assert found.limits == {"cpu", "memory", "pids"}


def test_gpus_are_passed_by_index() -> None:
    podman, docked = ContainerEngine("podman", "podman", "5"), ContainerEngine("docker", "docker", "27")
    given = {"gpu_count": 2, "gpus": (0, 3)}
    assert {"--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=3"} < {*words(podman, **given)}
    assert '--gpus="device=0,3"' in words(docked, **given)
    for engine in (podman, docked):
        for none in ({}, {"gpu_count": 2, "gpus": (0, 3), "emulated": True}):
            said = words(engine, **none)
            assert "--env=NVIDIA_VISIBLE_DEVICES=void" in said, "an image may name GPUs for itself"
            assert not [word for word in said if word.startswith(("--gpus", "--device"))]


def test_unsupported_limits_are_not_passed() -> None:
    said = words(ContainerEngine("podman", "podman", "5", limits=frozenset({"memory"})), cpu_cores=4, memory_gb=8)
    assert "--memory=8g" in said
    assert not [word for word in said if word.startswith(("--cpus", "--pids-limit"))]


def test_user_remapping_is_turned_off() -> None:
    assert "--userns=host" in words(ContainerEngine("docker", "docker", "27", remaps_users=True))
    assert not [word for word in words(ContainerEngine("docker", "docker", "27")) if word.startswith("--userns")]


@pytest.mark.parametrize("name", ["--privileged", "-v/:/host", "", "a b", "a\nb"])
def test_an_image_name_that_looks_like_an_option_is_refused(name: str) -> None:
    with pytest.raises(images.BackendError, match="IMAGE_NOT_FOUND"):
        images.has_image(ContainerEngine("podman", "/nothing", "5"), name)


@pytest.mark.parametrize(("said", "code", "permanent"), [
    ("Error response from daemon: manifest for lab:1 not found: manifest unknown", "IMAGE_NOT_FOUND", True),
    ("pull access denied for lab, repository does not exist or may require 'docker login'", "IMAGE_FORBIDDEN", True),
    ('Error: short-name "lab" did not resolve to an alias', "IMAGE_NOT_FOUND", True),
    ("Error: invalid reference format", "IMAGE_NOT_FOUND", True),
    ('Get "https://registry.test/v2/": net/http: TLS handshake timeout', "IMAGE_REGISTRY_AWAY", False),
    ("failed to register layer: write /usr/lib/x: no space left on device", "IMAGE_NO_ROOM", False),
    ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "CONTAINERS_AWAY", False),
    ("Error: something else", "IMAGE_PULL_FAILED", True),
])  # fmt: skip
def test_each_pull_error_has_its_cause(said: str, code: str, permanent: bool) -> None:
    error = images.build_pull_error(ContainerEngine("docker", "docker", "27"), "lab:1", f"Trying…\n{said}\n")
    assert (error.code, error.permanent) == (code, permanent)
    assert said in (error.params.get("evidence"), error.params.get("why"))


def test_a_too_old_interpreter_is_told_from_a_missing_one() -> None:
    ended = containers.ContainerState(True, True, False, containers.OLD_PYTHON_EXIT_CODE)
    old = containers.find_end_cause(ended, {"image": "lab"}, ["3.9.2"], has_started=False)
    assert (old.code, old.params["found"]) == ("IMAGE_WITHOUT_PYTHON", "Python 3.9.2")
    other = containers.find_end_cause(
        containers.ContainerState(True, True, False, 1), {"image": "lab"}, ["No module named x"], has_started=False
    )
    assert (other.code, other.params["evidence"]) == ("CONTAINER_NOT_STARTED", "No module named x")


def test_an_unknown_state_counts_as_running() -> None:
    box = containers.ContainerSpec("env-a-1", "env-a", Path("/d"), Path("/r"), Path("/w"), Path("/h"))
    said = json.dumps({"labels": box.labels, "state": {"Status": "thawing"}})
    assert containers.parse_state(said, box) == containers.ContainerState(True, True, True)
    assert not containers.parse_state(json.dumps({"labels": None, "state": {"Status": "exited"}}), box).ours


def test_a_name_in_use_is_no_fault_of_the_image() -> None:
    box = containers.ContainerSpec("env-a-1", "env-a", Path("/d"), Path("/r"), Path("/w"), Path("/h"))
    done = CommandResult(
        125, "", 'docker: Error response from daemon: Conflict. The container name "/env-a-1" is already in use\n'
    )
    assert (
        containers.build_run_error(ContainerEngine("docker", "docker", "27"), box, "lab", done).code
        == "CONTAINER_NAME_TAKEN"
    )


def test_envd_in_a_container_counts_only_the_disk() -> None:
    spec = EnvironmentSpec("env-a", "a", "project-1", 1, image="training:1", disk_gb=20)
    ordered = bounds.build_bounds({"bounds": {"reservePercent": 10}}, shared=True)
    assert containers.render_container(spec, {}, 10.0, ordered)["keeper"]["bounds"] == {
        "processes": 0, "open_files": 0, "memory": False, "control_group": False, "disk": 20 << 30, "reserve": 0.1
    }  # fmt: skip
