"""docker-compose.yml as its operator has it, from an empty host to a restored backup. Each test goes on where the last
ended."""

import os
import tarfile
from pathlib import Path

import pytest

from tests.deploy.compose import NAME, OURS, Api, Compose
from tests.deploy.engine import Engine
from tests.deploy.hosts import Hosts
from tests.polling import until

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def task(api: Api, hosts: Hosts) -> str:
    """One that trains on both hosts."""
    hosts.start(api, "gn6", "gn7")
    return hosts.train(api, "gn6", "gn7")


def test_the_image_holds_the_server_and_no_training_stack(engine: Engine, image: str) -> None:
    look = "import django, numpy, importlib.util as u, os; print(u.find_spec('torch'), os.getuid())"
    assert engine.docker("run", "--rm", image, "python", "-c", look) == "None 1000"


def test_one_command_starts_the_platform(platform: Compose, api: Api) -> None:
    assert platform.inspect(platform.container("migrate"), "{{.State.ExitCode}}") == "0"
    for service in OURS:
        assert platform.inspect(platform.container(service), "{{.State.Running}} {{.RestartCount}}") == "true 0", (
            service
        )
    until(
        lambda: platform.inspect(platform.container("web"), "{{.State.Health.Status}}") == "healthy",
        what="the web container is healthy",
    )
    assert api.get("/auth/me")["username"] == NAME


def test_a_task_trains_on_two_worker_containers(api: Api, task: str) -> None:
    api.until_steps(task, 20)
    assert api.get(f"/training-tasks/{task}/checkpoints")["items"]


def test_killed_processes_are_restarted_and_training_continues(platform: Compose, api: Api, task: str) -> None:
    for service in (*OURS, "redis", "postgresql"):
        before = platform.pid(service)
        platform.kill(service)
        until(lambda: platform.pid(service) not in (0, before), what=f"{service} is started again")  # noqa: B023
    until(platform.is_ready, what="the platform is ready again")
    api.until_steps(task, api.steps(task) + 20)
    assert api.get(f"/training-tasks/{task}")["attempt"] == 1


def test_an_upgrade_does_not_interrupt_training(engine: Engine, platform: Compose, api: Api, task: str) -> None:
    """Another image under the same name, as a build of a newer checkout gives."""
    newer = "FROM fermi:0.1.0\nLABEL release=newer\n"
    engine.docker("build", "--tag", "fermi:0.1.0", "-", input=newer, stdin=None)
    platform.up("--no-build")
    for service in OURS:
        assert platform.inspect(platform.container(service), "{{.Config.Labels.release}}") == "newer", service
    api.until_steps(task, api.steps(task) + 20)
    task = api.get(f"/training-tasks/{task}")
    assert (task["status"], task["attempt"]) == ("running", 1)


def test_a_backup_is_restored_on_an_empty_host(platform: Compose, hosts: Hosts, api: Api, task: str) -> None:
    hosts.finish()
    ended = api.until_status(task, "succeeded")
    log = api.client.get(f"/training-tasks/{task}/logs/download", params={"rank": "all"}).text
    assert "on gn6" in log
    assert "on gn7" in log
    backup = Path(platform.folder / "backup.tar")
    platform.script("backup.sh", backup)
    assert backup.stat().st_mode & 0o077 == 0
    hosts.close()
    platform("down", "--volumes")

    platform.script("restore.sh", backup)
    until(platform.is_ready, seconds=180, what="the restored platform is ready")
    assert api.get(f"/training-tasks/{task}") == ended
    assert api.client.get(f"/training-tasks/{task}/logs/download", params={"rank": "all"}).text == log
    kept = api.get(f"/training-tasks/{task}/checkpoints")["items"][0]["path"]
    platform("exec", "-T", "web", "test", "-s", kept)


@pytest.mark.parametrize("torn", ["archive", "dump"])
def test_a_damaged_backup_changes_nothing(torn: str, platform: Compose, api: Api, task: str, tmp_path: Path) -> None:
    backup, broken = platform.folder / "backup.tar", tmp_path / "broken.tar"
    if torn == "archive":
        broken.write_bytes(backup.read_bytes()[:4096])
    else:
        with tarfile.open(backup) as whole:
            whole.extractall(tmp_path, filter="data")
        dump = tmp_path / "database"
        os.truncate(dump, dump.stat().st_size // 2)
        with tarfile.open(broken, "w") as half:
            for name in ("database", "data"):
                half.add(tmp_path / name, name)
    before = [platform.pid(service) for service in (*OURS, "postgresql")]
    with pytest.raises(AssertionError, match="tar" if torn == "archive" else "pg_restore"):
        platform.script("restore.sh", broken)
    assert [platform.pid(service) for service in (*OURS, "postgresql")] == before
    assert api.get(f"/training-tasks/{task}")["status"] == "succeeded"
