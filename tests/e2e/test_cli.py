"""The `fermi` command and the Python client against the real platform and real training."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fermi.client import ConflictError, Fermi, NotFoundError
from tests.clean_environment import as_in_a_terminal
from tests.exported_scripts import Started
from tests.platform_process import ROOT, WARM, Running
from tests.polling import until

pytestmark = pytest.mark.e2e
SETTINGS = WARM

FEW_STEPS = ["--hp", "totalSteps=30", "--hp", "evalEvery=10", "--hp", "checkpointEvery=10"]
NO_END = ["--hp", "totalSteps=1000000"]

Answer = subprocess.CompletedProcess[str]
Cli = Callable[..., Answer]


@pytest.fixture
def env(platform: Running, tmp_path: Path) -> dict[str, str]:
    """A person on the platform's machine: nothing is configured but where the data directory is."""
    kept = {name: value for name, value in platform.env.items() if name not in ("FERMI_URL", "FERMI_TOKEN")}
    return {**kept, "XDG_CONFIG_HOME": str(tmp_path), "LANG": "en_US.UTF-8"}


@pytest.fixture
def fermi(env: dict[str, str]) -> Cli:
    def run(*arguments: str, text: str | None = None) -> Answer:
        command = [sys.executable, "-m", "fermi.cli", *arguments]
        return subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=240)

    return run


@pytest.fixture
def client(platform: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fermi:
    monkeypatch.setenv("FERMI_DATA", str(platform.data))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Fermi(lang="en")


def result(answer: Answer, code: int = 0) -> Any:
    assert answer.returncode == code, answer.stderr
    return json.loads(answer.stdout)


def test_a_task_is_previewed_submitted_followed_and_read_back(fermi: Cli) -> None:
    request = ["--name", "first", "--env", "env-local", *FEW_STEPS]
    preview = result(fermi("preview", *request, "-o", "json"))
    assert (preview["problems"], preview["worldSize"]) == ([], 1)

    followed = fermi("submit", *request, "--follow", "-o", "json")
    task = result(followed)
    assert (task["status"], task["step"], task["totalSteps"]) == ("succeeded", 30, 30)
    assert "succeeded  30/30  loss" in followed.stderr

    task_id = task["taskId"]
    points = result(fermi("metrics", task_id, "--names", "loss", "-o", "json"))["items"]
    assert points[-1]["values"]["loss"] < points[0]["values"]["loss"]
    steps = [item["step"] for item in result(fermi("checkpoints", task_id, "-o", "json"))["items"]]
    assert steps == [30, 20, 10]
    codes = [item["code"] for item in result(fermi("events", task_id, "-o", "json"))["items"]]
    assert codes[-1] == "STATE_SUCCEEDED"
    assert '"step": 30' in fermi("logs", task_id).stdout
    found = fermi("logs", task_id, "--search", "checkpoint_step_20", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["rank"] for line in found] == [0]
    assert task_id in fermi("list", "--search", "first").stdout

    clone = yaml.safe_load(fermi("clone", task_id).stdout)
    assert clone["hyperparameters"] == {"totalSteps": 30, "evalEvery": 10, "checkpointEvery": 10}
    assert fermi("delete", task_id, "--yes").returncode == 0
    assert fermi("get", task_id).returncode == 4


def test_a_failing_script_makes_submit_and_launch_fail(fermi: Cli, platform: Running, tmp_path: Path) -> None:
    workspace = platform.data / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "broken.py").write_text("import sys\nprint('about to fail', sys.argv[1:])\nsys.exit(7)\n")
    options = ["--env", "env-local", "--max-restarts", "0", "--script", "broken.py"]
    task = result(fermi("submit", "--name", "broken", *options, "--wait", "-o", "json", "--", "--epochs", "3"), 1)
    assert (task["status"], task["ranks"][0]["exitCode"]) == ("failed", 7)
    assert fermi("logs", task["taskId"]).stdout == "about to fail ['--epochs', '3']\n"

    folder = tmp_path / "by hand"
    assert fermi("scripts", task["taskId"], "--target", "shell", "-o", str(folder)).returncode == 0
    by_hand = {"FERMI_PYTHON": sys.executable, "FERMI_WORKDIR": str(workspace)}
    run = Started(tmp_path / "log", "bash", folder / "start-all.sh", **by_hand)
    assert run.wait() == 7, run.text
    assert "[rank 0] about to fail ['--epochs', '3']" in run.text


def test_a_file_is_submitted_and_flags_override_it(fermi: Cli) -> None:
    file = {
        "taskName": "from file",
        "datasetId": "python-stdlib",
        "datasetVersionId": "v1",
        "modelId": "model-001",
        "distributedConfig": {"nodeIds": ["pytorch-dev-env", "cv-experiment-env"], "masterNode": "cv-experiment-env"},
        "hyperparameters": {"totalSteps": 10, "learningRate": 0.001},
    }
    given = ["-f", "-", "--name", "from flag", "--hp", "totalSteps=5"]
    answer = fermi("submit", *given, "--wait", "-o", "json", text=yaml.safe_dump(file))
    task = result(answer)
    assert (task["taskName"], task["totalSteps"], task["masterNode"], task["worldSize"]) == (
        "from flag",
        5,
        "env-002",
        4,
    )
    assert "EMULATED_GPUS" in answer.stderr


def test_ctrl_c_leaves_training_running_and_stop_ends_it(fermi: Cli, client: Fermi, env: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "fermi.cli",
        "submit",
        "--name",
        "endless",
        "--env",
        "env-local",
        *NO_END,
        "--follow",
    ]
    with as_in_a_terminal():
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        running = until(lambda: client.tasks.list(search="endless", status="running").first(1), what="it trains")
        task_id = running[0]["taskId"]
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"fermi stop {task_id}" in err
    assert client.tasks.get(task_id)["status"] == "running"
    with pytest.raises(ConflictError):
        client.tasks.delete(task_id)
    assert fermi("stop", task_id, "--wait").returncode == 0
    assert result(fermi("get", task_id, "--wait", "-o", "json"), 1)["status"] == "stopped"


def test_following_survives_the_death_of_the_web_process(client: Fermi, platform: Running) -> None:
    task_id = platform.create(["env-local"], hyperparameters={"totalSteps": 400, "checkpointEvery": 100})
    seen: list[int] = []
    killed = False
    breaks = []
    for event in client.tasks.stream(task_id, on_break=breaks.append):
        if event.kind == "event":
            seen.append(event.data["id"])
        if not killed and event.kind == "event" and event.data["code"] == "ATTEMPT_BEGAN":
            platform.kill("web")
            killed = True
    assert killed
    assert breaks
    assert seen == [item["id"] for item in client.tasks.events(task_id)]
    assert client.tasks.wait(task_id)["status"] == "succeeded"


def test_a_log_is_followed_over_a_restart_without_losing_a_line(client: Fermi, platform: Running) -> None:
    workspace = platform.data / "workspace"
    workspace.mkdir(exist_ok=True)
    followed = workspace / "followed"
    program = (
        "import os, sys, time\n"
        "for n in range(3000):\n"
        "    print(os.environ['FERMI_ATTEMPT'], n, flush=n % 100 == 0)\n"
        "    while n == 0 and not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "sys.exit(os.environ['FERMI_ATTEMPT'] == '1')\n"
    )
    (workspace / "twice.py").write_text(program)
    entrypoint = {"script": "twice.py", "args": [str(followed)]}
    task_id = platform.create(["env-local"], entrypoint=entrypoint, maxRestarts=1)
    lines = []
    for line in client.tasks.logs(task_id, follow=True):
        if line.text[:2] in ("1 ", "2 "):
            lines.append(line)
            followed.touch()
    assert [(line.attempt, line.text) for line in lines] == [
        (attempt, f"{attempt} {n}") for attempt in (1, 2) for n in range(3000)
    ]
    assert client.tasks.wait(task_id)["status"] == "succeeded"


def test_an_idempotency_key_makes_one_task(client: Fermi, platform: Running) -> None:
    request: Any = platform.request(["env-local"], hyperparameters={"totalSteps": 1})
    first = client.tasks.create(request, idempotency_key="once")
    assert client.tasks.create(request, idempotency_key="once")["taskId"] == first["taskId"]
    with pytest.raises(ConflictError):
        client.tasks.create({**request, "taskName": "other"}, idempotency_key="once")
    assert client.tasks.wait(first["taskId"])["status"] == "succeeded"


def test_a_password_signs_in_and_strangers_see_nothing(fermi: Cli, platform: Running, env: dict[str, str]) -> None:
    make = "from apps.accounts.models import User; User.objects.create_user('alice', password='correct horse')"
    subprocess.run(
        [sys.executable, "manage.py", "shell", "-c", make], env=env, cwd=ROOT, check=True, capture_output=True
    )
    assert fermi("login", "--username", "alice", text="wrong\n").returncode == 3
    assert fermi("login", platform.url, "--username", "alice", text="correct horse\n").returncode == 0
    assert result(fermi("whoami", "-o", "json"))["username"] == "alice"
    task_id = platform.create(["env-local"], hyperparameters={"totalSteps": 1})
    assert fermi("get", task_id).returncode == 4
    assert fermi("stop", task_id).returncode == 4
    platform.until_final(task_id)


def test_everything_of_the_inventory_can_be_listed(fermi: Cli, client: Fermi) -> None:
    for command, word in (
        ("envs", "env-001"),
        ("zones", "北京可用区A"),
        ("datasets", "dataset-001"),
        ("models", "model-001"),
        ("frameworks", "pytorch-ddp"),
    ):
        assert word in fermi(command).stdout
        assert result(fermi(command, "-o", "json"))["total"] > 0
    summary = client.environments.summary(["env-001", "env-003", "env-005"], "env-001")
    assert (summary["worldSize"], summary["crossZone"]) == (14, True)
    assert [item["id"] for item in client.clusters.list()] == ["local"]
    assert client.clusters.get("local")["backend"] == "local"
    assert {item["name"] for item in client.projects.list()} == {"default"}
    with pytest.raises(NotFoundError):
        client.environments.get("env-none")


def test_a_token_lives_until_it_is_revoked(client: Fermi) -> None:
    made = client.tokens.create("for a script", expires_in_days=1)
    with Fermi(client.url, made["token"]) as other:
        assert other.me()["username"] == client.me()["username"]
        client.tokens.revoke(made["id"])
        assert made["id"] not in {token["id"] for token in client.tokens.list()}
    assert any(event["target"] for event in client.audit_events())


def test_the_examples_of_the_python_client_run(env: dict[str, str]) -> None:
    text = (ROOT / "docs" / "python-client.md").read_text("utf-8")
    train, inside, refused, curves = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert "to_pandas" in curves, "it needs pandas and a curve of lr; see tests/unit/client"
    outputs = [
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
        for code in (train, inside, refused)
    ]
    assert outputs[0].splitlines()[-1] == "succeeded"
    assert "loss" in outputs[0]
    assert "('taskName', 'NAME_REQUIRED')" in outputs[2]
    assert outputs[1].startswith("0 /")
    assert outputs[1].rstrip().endswith("hello")


def test_scaling_of_nodes_is_measured_and_leaves_no_process(fermi: Cli, platform: Running) -> None:
    wish = {"projectId": "default", "clusterId": "local", "zone": "local", "gpuType": "A100", "gpuCount": 1}
    made = [
        platform.api.post("/dev-environments", json={**wish, "name": f"twin-{number}", "emulated": True})
        for number in (1, 2)
    ]
    keys = [answer.raise_for_status().json()["data"]["id"] for answer in made]
    picked = ["--env", keys[0], "--env", keys[1]]
    found = result(fermi("scaling", "gpt-small", *picked, "--seconds", "1", "--framework", "ddp", "-o", "json"))
    one, two = found["rows"]
    assert (one["nodes"], one["gpus"], one["speedUp"], one["efficiency"]) == (1, 1, 1.0, 1.0)
    assert (two["nodes"], two["gpus"], two["theoretical"], two["unit"]) == (2, 2, 2.0, "tokens_per_s")
    assert two["efficiency"] == pytest.approx(two["perSecond"] / one["perSecond"] / 2)
    assert {platform.task(row["taskId"])["status"] for row in found["rows"]} == {"stopped"}
