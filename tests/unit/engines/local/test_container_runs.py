"""Lives of environments in containers, with an engine that only keeps books (`tests.fakes.podman`)."""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.environments import EnvironmentPhase, EnvironmentSpec
from fermi.engines.local import container_engines, container_runs
from fermi.engines.local.environments import LocalEnvironmentBackend
from fermi.jobs.errors import BackendError
from fermi.planning import plugins
from fermi.runner import terminate
from tests.envd_client import Kept
from tests.podman import Podman
from tests.polling import until

IMAGE = "registry.test/lab:1"


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Podman]:
    found = Podman(tmp_path / "podman")
    monkeypatch.setenv("PATH", f"{tmp_path / 'podman' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(container_runs, "RETRY_SECONDS", 0.05)
    yield found
    found.goes_on()
    found.says()
    for name in found.containers():
        container_engines.ContainerEngine("podman", str(found.folder / "bin" / "podman"), "").remove(name)


@pytest.fixture
def hosting(tmp_path: Path, podman: Podman) -> LocalEnvironmentBackend:
    return connected(tmp_path)


def connected(tmp_path: Path) -> LocalEnvironmentBackend:
    """As another process would have it: it knows what the files and the engine say."""
    (tmp_path / "data").mkdir(exist_ok=True)
    found = plugins.get_environment_backend("local", {"data_dir": str(tmp_path / "data"), "containers": True})
    assert isinstance(found, LocalEnvironmentBackend)
    return found


def named(hosting: LocalEnvironmentBackend, run: int = 1, **more: Any) -> Kept:
    return Kept(hosting, EnvironmentSpec("env-a", "a", "project-1", run, kind="custom", image=IMAGE, **more))


def inside(kept: Kept) -> Path:
    return Path(kept.hosting.data_dir) / "environments" / "env-a" / "runs" / str(kept.spec.run) / "inside"  # type: ignore[attr-defined]


def test_the_image_is_pulled_and_reported_meanwhile(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.slow()
    kept = named(hosting).start()
    seen = until(lambda: (now := kept.read_status()).doing and now.doing.params["line"] and now)
    assert (seen.phase, seen.left) == (EnvironmentPhase.STARTING, True)
    assert seen.doing.code == seen.waiting.code == "IMAGE_PULLING"
    assert seen.doing.params == {"image": IMAGE, "line": f"Trying to pull {IMAGE}..."}
    podman.goes_on()
    assert kept.until(EnvironmentPhase.RUNNING).activity.connections == 2
    assert kept.stop().phase is EnvironmentPhase.ENDED
    assert podman.containers() == []


def test_an_existing_image_is_not_pulled(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    named(hosting).start().until(EnvironmentPhase.RUNNING)
    assert podman.list_calls("pull") == []


def test_starting_twice_starts_once_even_with_another_agent(
    hosting: LocalEnvironmentBackend, podman: Podman, tmp_path: Path
) -> None:
    podman.has(IMAGE)
    named(hosting).start().start().until(EnvironmentPhase.RUNNING)
    later = named(connected(tmp_path))
    assert later.read_status().phase is EnvironmentPhase.RUNNING
    later.start()
    until(lambda: not later.hosting.containers._lives(later.hosting._box(later.hosting._run(later.handle))))  # type: ignore[attr-defined]
    assert len(podman.runs()) == 1
    assert podman.containers() == ["env-a-1"]
    assert later.stop().left is False
    assert podman.containers() == []


def test_a_run_whose_agent_died_before_the_container_starts_with_the_next(
    hosting: LocalEnvironmentBackend, podman: Podman, tmp_path: Path
) -> None:
    podman.slow()
    named(hosting).start()
    later = named(connected(tmp_path))
    assert (later.read_status().phase, later.read_status().left) == (EnvironmentPhase.ABSENT, True)
    podman.goes_on()
    later.start().until(EnvironmentPhase.RUNNING)
    assert podman.containers() == ["env-a-1"]


def test_a_run_stopped_during_the_pull_never_starts(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.slow()
    kept = named(hosting).start()
    until(lambda: podman.list_calls("pull"))
    hosting.stop(kept.handle, 3.0)
    seen = until(lambda: (now := kept.read_status()).left is False and now)
    assert (seen.phase, seen.cause) == (EnvironmentPhase.ABSENT, None)
    kept.start()
    assert podman.runs() == []


def test_variables_and_secrets_are_not_on_the_command_line(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    kept = named(hosting, env={"PLAIN": "open-to-few"}, secret_env={"KEY": "name"}, start_script="echo in-a-script")
    kept.start({"KEY": "hush"}).until(EnvironmentPhase.RUNNING)
    words = json.dumps(podman.list_calls("run"))
    assert not [word for word in ("hush", "open-to-few", "in-a-script") if word in words]
    assert not (inside(kept) / "secrets.json").exists(), "read and removed"
    assert stat.S_IMODE((inside(kept) / "keeper.json").stat().st_mode) == 0o600
    assert "hush" not in "".join(path.read_text() for path in inside(kept).glob("*.json"))


def test_limits_and_security_options_are_passed_to_the_engine(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    named(hosting, cpu_cores=3, memory_gb=5, shared_memory_gb=2).start().until(EnvironmentPhase.RUNNING)
    [words] = podman.runs()
    assert {"--cpus=3", "--memory=5g", "--shm-size=2g", "--cap-drop=all", "--security-opt=no-new-privileges"} < {*words}
    assert not {"--privileged", "--pid=host", "--ipc=host", "--cap-add"} & {word.partition(",")[0] for word in words}
    assert "--user=0:0" in words, "who asks a rootless engine is user 0 of its containers"
    mounts = [word for word in words if word.startswith("type=bind")]
    assert [word.endswith(",readonly") for word in mounts] == [True, True, False, False, False]


def test_a_run_that_ignores_the_stop_is_ended_by_the_engine(
    hosting: LocalEnvironmentBackend, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminate, "RUNNER_OVERDUE_SECONDS", 0.0)
    podman.has(IMAGE)
    kept = named(hosting, env={"DEAF": "1"}).start()
    kept.until(EnvironmentPhase.RUNNING)
    hosting.stop(kept.handle, 0.0)
    seen = until(lambda: hosting.stop(kept.handle, 0.0) or ((now := kept.read_status()).left is False and now))
    assert (seen.phase, seen.cause) == (EnvironmentPhase.ENDED, None)
    assert podman.containers() == []


def test_a_killed_container_is_lost_and_removed(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    kept = named(hosting).start()
    kept.until(EnvironmentPhase.RUNNING)
    os.kill(podman.pid("env-a-1"), 9)
    seen = kept.until(EnvironmentPhase.ENDED)
    assert (seen.left, seen.cause and seen.cause.code) == (False, "KEEPER_LOST")
    assert podman.containers() == []
    kept.start()
    assert kept.read_status() == seen, "a run has one life"


def test_an_oom_killed_container_says_so(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    kept = named(hosting, memory_gb=2).start()
    kept.until(EnvironmentPhase.RUNNING)
    podman.says(state={"Status": "exited", "ExitCode": 137, "OOMKilled": True})
    os.kill(podman.pid("env-a-1"), 9)
    cause = kept.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert (cause.code, cause.params["memory"]) == ("CONTAINER_OUT_OF_MEMORY", 2)


def test_an_unresponsive_engine_changes_nothing(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    kept = named(hosting).start()
    kept.until(EnvironmentPhase.RUNNING)
    podman.says(away="unable to connect to Podman socket: connection refused")
    assert kept.read_status().phase is EnvironmentPhase.RUNNING, "that it lives is seen without it"
    os.kill(podman.pid("env-a-1"), 9)
    seen = until(lambda: (now := kept.read_status()).phase is EnvironmentPhase.UNKNOWN and now)
    assert (seen.left, seen.waiting and seen.waiting.code) == (None, "CONTAINERS_AWAY")
    podman.says()
    assert kept.until(EnvironmentPhase.ENDED).left is False


@pytest.mark.parametrize(("says", "code"), [
    ({"pull": [125, "initializing source docker://x: reading manifest 1 in x: manifest unknown"]}, "IMAGE_NOT_FOUND"),
    ({"pull": [125, "reading manifest 1 in x: unauthorized: authentication required"]}, "IMAGE_FORBIDDEN"),
    ({"run": [127, 'runc: exec: "python3": executable file not found in $PATH']}, "IMAGE_WITHOUT_PYTHON"),
    ({"run": [126, "crun: exec format error: OCI runtime error"]}, "CONTAINER_NOT_STARTED"),
])  # fmt: skip
def test_a_permanent_error_ends_the_run_with_its_cause(
    hosting: LocalEnvironmentBackend, podman: Podman, says: dict[str, Any], code: str
) -> None:
    hosting.containers.engine()
    podman.says(**says)
    kept = named(hosting).start()
    seen = kept.until(EnvironmentPhase.ENDED)
    assert (seen.left, seen.cause and seen.cause.code) == (False, code)
    assert podman.containers() == []
    assert len(podman.list_calls("pull")) == 1, "not tried again"


@pytest.mark.parametrize(("words", "code"), [
    ("writing blob: storing blob to file: write /var/tmp/x: no space left on device", "IMAGE_NO_ROOM"),
    ("pinging container registry x: dial tcp: lookup x: no such host", "IMAGE_REGISTRY_AWAY"),
    ("reading manifest 1 in x: toomanyrequests: You have reached your pull rate limit", "IMAGE_REGISTRY_AWAY"),
])  # fmt: skip
def test_a_temporary_error_is_retried_with_its_reason(
    hosting: LocalEnvironmentBackend, podman: Podman, words: str, code: str
) -> None:
    podman.says(pull=[125, words])
    kept = named(hosting).start()
    seen = until(lambda: (now := kept.read_status()).waiting and now.waiting.code == code and now)
    assert (seen.phase, seen.left) == (EnvironmentPhase.STARTING, True)
    podman.says()
    kept.until(EnvironmentPhase.RUNNING)


def test_gpus_that_the_engine_cannot_give_are_named(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    kept = named(hosting, gpu_count=2, gpus=(1, 3)).start()
    cause = kept.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert cause.code == "CONTAINER_GPUS_UNKNOWN"
    assert [word for word in podman.runs()[0] if word.startswith("--device")] == [
        "--device=nvidia.com/gpu=1", "--device=nvidia.com/gpu=3",
    ]  # fmt: skip


def test_foreign_containers_are_not_touched(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    podman.add("env-a-1", **{"io.fermi.run": "env-a-1", "io.fermi.data": "/another/agent"})
    podman.add("database")
    kept = named(hosting).start()
    cause = kept.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert cause.code == "CONTAINER_NAME_TAKEN"
    hosting.stop(kept.handle, 0.0)
    assert hosting.delete("env-a")
    assert podman.containers() == ["database", "env-a-1"]


def test_deleting_removes_the_disk_and_labelled_containers(hosting: LocalEnvironmentBackend, podman: Podman) -> None:
    podman.has(IMAGE)
    kept = named(hosting).start()
    kept.until(EnvironmentPhase.RUNNING)
    assert not hosting.delete("env-a"), "it runs"
    kept.stop()
    data = str(hosting.data_dir)
    podman.add("left", **{"io.fermi.environment": "env-a", "io.fermi.data": data})
    podman.add("another", **{"io.fermi.environment": "env-b", "io.fermi.data": data})
    assert hosting.delete("env-a")
    assert not (hosting.data_dir / "environments" / "env-a").exists()
    assert podman.containers() == ["another"]


def test_status_files_written_inside_the_container_are_not_trusted(
    hosting: LocalEnvironmentBackend, podman: Podman, tmp_path: Path
) -> None:
    podman.has(IMAGE)
    forged = {"activity": {"at": 1e999, "connections": "many", "kernels": [{"id": 7}, "x"], "holders": None},
              "doing": {"code": ["x"]}}  # fmt: skip
    kept = named(hosting, env={"SAYS": json.dumps(forged)}).start()
    seen = kept.until(EnvironmentPhase.RUNNING)
    assert (seen.activity.at, seen.activity.connections, seen.doing) == (None, 0, None)
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    for name in ("keeper.log", "keeper.token", "keeper.status.json"):
        (inside(kept) / name).unlink(missing_ok=True)
        (inside(kept) / name).symlink_to(secret)
    assert kept.log() == ""
    assert kept.read_status().phase is EnvironmentPhase.STARTING
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fermi.engines.local.environments.DIAL_SECONDS", 0.1)
        with pytest.raises(BackendError, match="ENVIRONMENT_AWAY"):
            hosting.dial(kept.handle)
    shutil.rmtree(inside(kept))
    assert kept.read_status().left is True, "the engine knows that it runs"


def test_an_image_without_a_container_engine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for wanted, for_good in ((True, False), (False, True)):
        hosting = plugins.get_environment_backend("local", {"data_dir": str(tmp_path), "containers": wanted})
        assert isinstance(hosting, LocalEnvironmentBackend)
        with pytest.raises(BackendError) as refused:
            named(hosting).start()
        assert (refused.value.code, refused.value.permanent) == ("HOST_WITHOUT_CONTAINERS", for_good)


def test_on_the_platforms_machine_an_environment_is_a_process(tmp_path: Path) -> None:
    hosting = plugins.get_environment_backend("local", {"data_dir": str(tmp_path)})
    assert hosting
    assert "container" not in hosting.render(EnvironmentSpec("env-a", "a", "p", 1, image=IMAGE)).artifacts[0].content
