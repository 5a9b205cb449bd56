"""A secret's value through the real platform: it reaches the ranks, and lies nowhere else."""

import base64
import hashlib
import json
import os
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.e2e.kubernetes_platform import Lab
from tests.fakes.kubernetes import FakeCluster
from tests.platform_process import ROOT, WARM, Running
from tests.polling import until

pytestmark = [pytest.mark.e2e]
SETTINGS = WARM

PROJECT = "default"
KEY = f"/projects/{PROJECT}/secrets/the-key"
SCRIPT = """
import hashlib, os, sys, time
print("digest", hashlib.sha256(os.environ["API_KEY"].encode()).hexdigest(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.fixture
def value() -> str:
    return f"sesame-{secrets.token_hex(16)}"


def forms(value: str) -> list[bytes]:
    return [value.encode(), base64.b64encode(value.encode()).rstrip(b"=")]


def in_files(folder: Path, value: str) -> list[str]:
    """Logs of the platform's processes, its database, plans, statuses, outputs: all of the data directory."""
    found = []
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names):  # folders come and go
        with suppress(OSError):
            if path.is_file() and any(form in path.read_bytes() for form in forms(value)):
                found.append(str(path))
    return found


def in_tables(platform: Running, value: str) -> list[str]:
    """Names of tables with a row that has it."""
    if url := platform.env.get("DATABASE_URL"):
        dump = subprocess.run(["pg_dump", "--data-only", url], capture_output=True, check=True).stdout
        return ["somewhere"] if any(form in dump for form in forms(value)) else []
    with sqlite3.connect(platform.data / "fermi.sqlite3") as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: repr(database.execute(f'SELECT * FROM "{name}"').fetchall()).encode() for name in tables}
    return [name for name, content in rows.items() if any(form in content for form in forms(value))]


def in_command_lines(value: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if value.encode() in path.read_bytes():
                found.append(str(path))
    return found


PERSON = """
from apps.accounts.models import ApiToken, Membership, User
user = User.objects.create_user({name!r})
Membership.objects.create(project_id={project!r}, user=user, role={role!r})
print("token", ApiToken.objects.create(user=user, expiry=None)[1])
"""


def token_of(platform: Running, role: str) -> str:
    """Of somebody new who has the role."""
    code = PERSON.format(name=f"{role}-{secrets.token_hex(3)}", project=PROJECT, role=role)
    command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", code]
    done = subprocess.run(command, env=platform.env, cwd=ROOT, check=True, capture_output=True, text=True)
    return next(line for line in done.stdout.splitlines() if line.startswith("token ")).split()[1]


def answers(platform: Running, task_id: str) -> Iterator[tuple[str, bytes]]:
    """Whatever a member and a viewer can ask about the task."""
    for role in ("member", "viewer"):
        token = token_of(platform, role)
        with httpx.Client(base_url=f"{platform.url}/api/v1", headers={"Authorization": f"Bearer {token}"}) as api:
            for part in ("", "/plan", "/events", "/logs", "/logs/download", "/checkpoints", "/metrics", "/scripts"):
                yield part, api.get(f"/training-tasks/{task_id}{part}").content
            yield "clone", api.post(f"/training-tasks/{task_id}/clone").content
            yield "secrets", api.get(f"/projects/{PROJECT}/secrets").content
            yield "audit", api.get("/audit-events").content


def assert_nowhere(platform: Running, task_id: str, value: str) -> None:
    told = [part for part, content in answers(platform, task_id) if any(form in content for form in forms(value))]
    assert told == []
    assert in_tables(platform, value) == []
    assert in_files(platform.data, value) == []
    assert not any(form in platform.output.read_bytes() for form in forms(value)), "the platform's own log"
    assert in_command_lines(value) == []


def test_a_secret_is_in_the_ranks_environment_and_nowhere_else(platform: Running, value: str) -> None:
    script, go = platform.data / "workspace" / "digest.py", platform.data / "workspace" / "go"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    assert platform.api.put(KEY, json={"value": value}).status_code == 200
    task_id = platform.create(
        ["env-001", "env-002"], datasetId=None, datasetVersionId=None, modelId=None,
        entrypoint={"script": "digest.py", "args": [str(go)]}, secretEnv={"API_KEY": "the-key"},
    )  # fmt: skip
    digest = f"digest {hashlib.sha256(value.encode()).hexdigest()}"
    for rank in range(4):
        until(lambda rank=rank: digest in platform.log(task_id, rank), seconds=180, what=f"rank {rank} has it")
    assert_nowhere(platform, task_id, value)
    go.touch()
    platform.until_state(task_id, "succeeded", seconds=180)
    assert_nowhere(platform, task_id, value)

    newer = f"sesame-{secrets.token_hex(16)}"
    platform.api.put(KEY, json={"value": newer})
    again = platform.create(
        ["env-001"], datasetId=None, datasetVersionId=None, modelId=None,
        entrypoint={"script": "digest.py", "args": [str(go)]}, secretEnv={"API_KEY": "the-key"},
    )  # fmt: skip
    platform.until_state(again, "succeeded", seconds=180)
    assert f"digest {hashlib.sha256(newer.encode()).hexdigest()}" in platform.log(again, 0)


@pytest.mark.timeout(900)
def test_on_kubernetes_a_secret_is_only_in_the_attempts_secret(
    platform: Running, value: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = FakeCluster(tmp_path_factory.mktemp("kubernetes")).start()
    try:
        lab = Lab(platform, cluster)
        assert platform.api.put(KEY, json={"value": value}).status_code == 200
        script = "import hashlib, os; print('digest', hashlib.sha256(os.environ['API_KEY'].encode()).hexdigest())"
        request = lab.request(
            datasetId=None, datasetVersionId=None, modelId=None, secretEnv={"API_KEY": "the-key"},
            entrypoint={"script": "-c", "args": [script]},
        )  # fmt: skip
        task_id = lab.send("POST", "/training-tasks", **request)["taskId"]
        platform.until_state(task_id, "succeeded", seconds=600)
        assert hashlib.sha256(value.encode()).hexdigest() in platform.log(task_id, 0)
        assert_nowhere(platform, task_id, value)
        encoded = base64.b64encode(value.encode()).decode()
        kinds = ("configmaps", "services", "jobs", "pods", "events", "secrets")
        texts = [(kind, json.dumps(obj)) for kind in kinds for obj in cluster.all(kind)]
        assert {kind for kind, text in texts if encoded in text or value in text} <= {"secrets"}
        assert not cluster.calls("get", "secrets")
        lab.send("DELETE", f"/training-tasks/{task_id}")
        until(lambda: not [name for name in cluster.names("secrets") if name.startswith(task_id)], what="it is gone")
    finally:
        platform.close()
        cluster.close()
    assert not cluster.errors, "\n".join(cluster.errors)
