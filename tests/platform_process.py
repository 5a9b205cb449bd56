"""The real platform, started as its user starts it, on scratch data: for end-to-end, fault and console tests."""

import fcntl
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from fermi.engines.local.engine import list_running_attempts, stop_everything
from fermi.runner import processes
from fermi.runner.record_frames import strip_frames
from server.up import schema
from server.up.child import build_environment
from tests import services
from tests.polling import until

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "build" / "tests" / "migrated"
PARTS = {"web", "worker", "beat", "watch"}
FINAL = ("succeeded", "failed", "stopped")
WARM = {"FERMI_STAND_BY": "1"}
"""For tests of which most train: one process imports PyTorch for all of them."""


WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
PORTS = iter(random.sample(range(10_000 + 1_000 * WORKER, 11_000 + 1_000 * WORKER), 1_000))
"""Of this test process alone, and below what Linux hands out by itself: a port of port 0 can be anybody's outgoing
connection by the time that a training process, seconds later, listens on it."""


def free_port() -> int:
    for port in PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("all ports of this test process were handed out")


def migrated() -> Path:
    """Return a data directory with nothing but a migrated database, made once for all runs with the same migrations."""
    made = IMAGES / _migrations_digest()
    with _images_locked():
        if not made.exists():
            for old in IMAGES.glob("*/"):
                shutil.rmtree(old)
            making = made.with_suffix(".new")
            making.mkdir()
            _migrate(making)
            schema.record_migrated(making)
            making.rename(made)
    return made


def migrated_template() -> str:
    """Return the name of such a database on the private PostgreSQL. It is restored from a dump in the data directory,
    which the first run makes."""
    made, name = migrated(), f"fermi_{_migrations_digest()}"
    dump = made / f"{services.version()}.sql"
    with _images_locked():
        if not services.exists(name):
            url = services.separate(name=f"{name}_new")["DATABASE_URL"]
            if dump.exists():
                services.restore(url, dump)
            else:
                _migrate(made, DATABASE_URL=url)
                services.dump(url, dump)
            services.rename(f"{name}_new", name)
    return name


@contextmanager
def _images_locked() -> Iterator[None]:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with IMAGES.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _migrate(data: Path, **env: str) -> None:
    command = [sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "0"]
    subprocess.run(command, env=build_environment(FERMI_DATA=str(data), **env), cwd=ROOT, check=True)


def _migrations_digest() -> str:
    """Return a name for our migrations, by content, and the packages', by the pins."""
    digest = hashlib.sha256((ROOT / "requirements.txt").read_bytes())
    for path in sorted(ROOT.glob("apps/*/migrations/*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def copied(name: str = "") -> dict[str, str]:
    """DATABASE_URL and REDIS_URL of such a database on the private PostgreSQL."""
    return services.separate(like=migrated_template(), name=name)


def copy_database(name: str) -> None:
    """For tests that need no platform: a file, or a database of the private PostgreSQL."""
    if os.environ.get("FERMI_TEST_DB") == "postgres":
        copied(name)
    else:
        shutil.copy(migrated() / "fermi.sqlite3", name)


def prepare(data: Path) -> None:
    """Makes a data directory of its own with such a database."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("fermi.sqlite3", schema.STATE_FILE):
        shutil.copy(migrated() / name, data)


class Running:
    """`start` returns when the API answers and there is something to train on; `api` speaks for the administrator.
    `fresh`: it prepares its database itself, as a platform's first start does. No process stands by with PyTorch
    imported, unless it is asked for: half of what is started here would never use it."""

    fresh = False
    root = ROOT
    """Where the code lies that is started."""

    def __init__(self, data: Path, **env: str) -> None:
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        first = random.randrange(20_000 + 2_000 * (WORKER % 4), 22_000 + 2_000 * (WORKER % 4), 100)
        self.master_port = first
        ports = {"FERMI_MASTER_PORTS": f"{first}-{first + 99}"}
        path = os.pathsep.join([str(self.root), str(self.root / "platform")])
        self.env = {
            **os.environ,
            "FERMI_DATA": str(data),
            "FERMI_PORT": str(self.port),
            "PYTHONPATH": path,
            "FERMI_STAND_BY": "0",
            "FERMI_WEB": "1",
            "FERMI_RATE_LIMIT": "0",  # tests ask as often as they can whether something has happened
            **ports,
            **env,
        }
        for name in ("DJANGO_SETTINGS_MODULE", "FERMI_TEST_DATA", "FERMI_SECRET_KEY", "PYTEST_CURRENT_TEST"):
            self.env.pop(name, None)
        if os.environ.get("FERMI_TEST_DB") == "postgres":
            self.env.update(services.separate() if self.fresh else copied())
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.output = data.with_name(data.name + ".out")

    def start(self) -> "Running":
        if not (self.fresh or self.data.exists() or "DATABASE_URL" in self.env):
            prepare(self.data)
        with self.output.open("ab") as output:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "server.up"], env=self.env, cwd=self.root, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        until(self.is_up, seconds=120, what="the platform serves")
        token = (self.data / "token").read_text().strip()
        self.api = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {token}", "Accept-Language": "en"},
            timeout=30,
            transport=httpx.HTTPTransport(retries=5),
        )
        until(self._has_data, seconds=120, what="the demo dataset is ready")
        return self

    def _has_data(self) -> bool:
        versions = self.get("/datasets/dataset-001")["versions"]
        return all(version["status"] == "ready" for version in versions)

    def is_up(self) -> bool:
        assert self.supervisor is not None
        if self.supervisor.poll() is not None:
            raise AssertionError(f"the platform ended:\n{self.output.read_text()[-4000:]}")
        if not self.processes().keys() >= PARTS:
            return False
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)  # httpx would load certificates each time
        try:
            asked.request("GET", "/readyz")
            return asked.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            asked.close()

    def processes(self) -> dict[str, dict[str, Any]]:
        """Living processes of the platform by name."""
        try:
            known = json.loads((self.data / "run" / "processes.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return {entry["name"]: entry for entry in known if processes.is_alive(entry)}

    def kill(self, *names: str) -> None:
        """kill -9, no chance to clean up."""
        for name in names:
            if entry := self.processes().get(name):
                processes.send_signal(entry, signal.SIGKILL)

    def kill_everything(self) -> None:
        """The supervisor too, as a power cut would; training goes on."""
        assert self.supervisor is not None
        self.supervisor.kill()
        self.supervisor.wait()
        self.kill(*self.processes())

    def interrupt(self) -> None:
        """Ctrl-C."""
        assert self.supervisor is not None
        self.supervisor.send_signal(signal.SIGINT)
        self.supervisor.wait(60)

    def close(self) -> None:
        if self.supervisor and self.supervisor.poll() is None:
            self.interrupt()
        self.kill(*self.processes())
        stop_everything(self.data, grace_seconds=0.0)

    # What tests do with it ---------------------------------------------------------------------------------------

    def create(self, environments: list[str], **changes: Any) -> str:
        answer = self.api.post("/training-tasks", json=self.request(environments, **changes))
        assert answer.status_code == 201, answer.text
        task_id: str = answer.json()["data"]["taskId"]
        return task_id

    @staticmethod
    def request(environments: list[str], **changes: Any) -> dict[str, Any]:
        many = {"distributedConfig": {"nodeIds": environments, "masterNode": environments[0], "framework": "ddp"}}
        return {
            "taskName": "test",
            "datasetId": "dataset-001",
            "datasetVersionId": "version-001",
            "modelId": "model-001",
            "launchMode": "existing",
            **(many if len(environments) > 1 else {"environmentIds": environments}),
            **changes,
        }

    def get(self, path: str, **query: Any) -> Any:
        """`data` of the answer; asked again while the web process is away."""

        def asked() -> httpx.Response | None:
            try:
                return self.api.get(path, params=query)
            except httpx.TransportError:
                return None

        answer = until(asked, what=f"an answer from {path}")
        return answer.raise_for_status().json()["data"]

    def task(self, task_id: str) -> dict[str, Any]:
        return self.get(f"/training-tasks/{task_id}")

    def rank_pid(self, task_id: str, rank: int) -> int:
        """Process id of a rank, once the platform knows it."""
        pid: int = until(lambda: self.task(task_id)["ranks"][rank]["pid"], what=f"rank {rank} of {task_id} runs")
        return pid

    def items(self, task_id: str, what: str, **query: Any) -> list[dict[str, Any]]:
        return self.get(f"/training-tasks/{task_id}/{what}", **query)["items"]

    def log(self, task_id: str, rank: int = 0, attempt: int = 1) -> str:
        """What the rank has printed: its log without the records of its runner."""
        path = self.data / "logs" / task_id / str(attempt) / f"{rank}.log"
        return strip_frames(path.read_bytes()).decode() if path.exists() else ""

    def until_state(self, task_id: str, *states: str, seconds: float = 120) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            task = self.task(task_id)
            if task["status"] in FINAL and task["status"] not in states:
                raise AssertionError(f"{task_id} ended as {task['status']}: {task['reason']}\n{self.log(task_id)}")
            return task if task["status"] in states else None

        return until(reached, seconds=seconds, what=f"{task_id} is {' or '.join(states)}")

    def until_final(self, task_id: str, seconds: float = 120) -> dict[str, Any]:
        return self.until_state(task_id, *FINAL, seconds=seconds)

    def strays(self) -> list[str]:
        """Attempts of which something still runs."""
        return list_running_attempts(self.data)


if __name__ == "__main__":  # for the tests of the console in a browser
    prepare(Path(sys.argv[1]))
