"""deploy/systemd on a host where systemd is process 1, installed by the commands of docs/worker-agent.md."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.compose import Api, Compose
from tests.deploy.engine import Engine
from tests.deploy.hosts import Hosts, seen
from tests.platform_process import ROOT
from tests.polling import until

pytestmark = pytest.mark.timeout(1800)

PAGE = (ROOT / "docs" / "worker-agent.md").read_text(encoding="utf-8")
INSTALL, TAKEN = (
    [line.removeprefix("$ ").partition(" #")[0] for line in found.splitlines()]
    for found in re.findall(
        r"```console\n(.*?)```", PAGE.partition("### As a service\n")[2].partition("\n### ")[0], re.S
    )
)
"""The commands there, and those for a host where the number is somebody's already."""


class Host:
    """A container; `run` is what its administrator types."""

    def __init__(self, engine: Engine, image: str, platform: Compose, workspace: Path) -> None:
        unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        cgroups = ["--cgroupns", "host", "--volume", f"/sys/fs/cgroup:/sys/fs/cgroup:{'rw' if unified else 'ro'}"]
        memory = [word for folder in ("/run", "/run/lock", "/tmp") for word in ("--tmpfs", folder)]
        volumes = seen(f"{platform.project}_data:/data", f"{workspace}:/srv/training")
        self.engine = engine
        self.container = engine.docker(
            "run", "--detach", "--hostname", "gn8", "--network", platform.network, "--cap-add", "SYS_ADMIN",
            "--security-opt", "seccomp=unconfined", *memory, *cgroups, *volumes, image,
        )  # fmt: skip
        until(lambda: self.run("systemctl is-system-running", check=False) == "running", what="systemd has started")

    def run(self, command: str, check: bool = True) -> str:
        return self.engine.docker("exec", "--workdir", str(ROOT), self.container, "sh", "-ec", command, check=check)

    def rank(self, api: Api, task: str) -> tuple[int, str]:
        """The number of rank 0's process here, and when that began."""
        pid = api.get(f"/training-tasks/{task}")["ranks"][0]["pid"]
        return pid, self.run(f"cut -d' ' -f22 /proc/{pid}/stat")


@pytest.fixture(scope="module")
def host(engine: Engine, image: str, platform: Compose, api: Api, hosts: Hosts) -> Iterator[Host]:
    engine.docker("build", "--network", "host", "--tag", "fermi-host", "--file",
                  str(ROOT / "tests/deploy/images/host.Containerfile"), ".")  # fmt: skip
    made = Host(engine, "fermi-host", platform, hosts.workspace)
    try:
        yield made
    finally:
        engine.docker("rm", "--force", "--volumes", made.container)


def until_online(host: Host, api: Api) -> None:
    def online() -> list[str]:
        assert host.run("systemctl is-failed fermi-worker", check=False) != "failed", host.run(
            "journalctl -u fermi-worker"
        )
        return [worker["id"] for worker in api.get("/workers", node="gn8", status="online")["items"]]

    assert until(online, seconds=120, what="the worker is online") == ["gn8-0"]


def test_the_documented_commands_install_a_service_that_registers(host: Host, api: Api) -> None:
    token = api.post("/workers/join-tokens", {"name": "service", "projectId": api.project})["token"]
    config = {"server": '"http://web:8000"', "node": '"gn8"', "gpus": "[0]", "python": f'"{sys.executable}"'}
    edits = [f"-e 's#^{name} *=.*#{name} = {value}#'" for name, value in config.items()]
    for command in INSTALL:
        if command.startswith("systemctl"):
            host.run(f"printf %s {token} > /etc/fermi/join-token")
            host.run(f"sed -i {' '.join(edits)} -e 's/^# emulate/emulate/' /etc/fermi/worker.toml")
        if not command.startswith("journalctl"):
            host.run(command)

    until_online(host, api)


def test_training_outlives_the_service(host: Host, hosts: Hosts, api: Api) -> None:
    task = hosts.train(api, "gn8")
    api.until_steps(task, 5)
    rank = host.rank(api, task)
    host.run("systemctl restart fermi-worker")
    api.until_steps(task, api.steps(task) + 10)
    host.run("systemctl kill --signal KILL --kill-who main fermi-worker")
    api.until_steps(task, api.steps(task) + 10)
    still = host.rank(api, task)
    hosts.finish()
    assert rank == still
    assert api.until_status(task, "succeeded")["attempt"] == 1


def test_where_the_uid_is_in_use_its_owner_runs_the_service(host: Host, hosts: Hosts, api: Api) -> None:
    """The host as it would be, had the number been alice's when the service was installed."""
    host.run("systemctl stop fermi-worker")
    host.run("sed -i s/^fermi:/alice:/ /etc/passwd /etc/shadow /etc/group /etc/gshadow")
    useradd, *others = INSTALL
    assert "is not unique" in host.run(useradd, check=False)
    host.run(next(one for one in others if one.startswith("install -d")).replace("fermi", "alice"))
    for command in TAKEN:
        host.run(command)
    host.run("systemctl start fermi-worker")
    until_online(host, api)
    assert host.run("stat -c %U /proc/$(systemctl show --property MainPID --value fermi-worker)") == "alice"
    task = hosts.train(api, "gn8")
    api.until_steps(task, 5)
    hosts.finish()
    api.until_status(task, "succeeded")
