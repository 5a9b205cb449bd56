"""The main job, as its user does it: choose environments, create a task, watch real training on real text."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.platform_process import WARM, Running
from tests.polling import until

pytestmark = [pytest.mark.e2e, pytest.mark.database]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """As it is for its users: a process stands by that has the training stack imported."""
    running = Running(tmp_path_factory.mktemp("platform") / "data", **WARM).start()
    yield running
    running.close()


def messages(response: httpx.Response) -> Iterator[tuple[str, str, Any]]:
    """(id, event, data) of a Server-Sent Events stream; an event without an id has the last one's."""
    fields: dict[str, str] = {"id": ""}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {"id": fields["id"]}


def test_two_environments_train_on_real_text_survive_a_killed_rank_and_show_it(platform):
    hyperparameters = {"totalSteps": 120, "checkpointEvery": 20, "evalEvery": 20, "evalBatches": 2, "logEvery": 5,
                       "learningRate": 0.01, "warmupSteps": 5, "stepDelay": 0.02}  # fmt: skip
    task_id = platform.create(["env-001", "env-002"], hyperparameters=hyperparameters)
    until(lambda: platform.items(task_id, "checkpoints"), seconds=180, what="a checkpoint half-way")
    os.kill(platform.rank_pid(task_id, 2), signal.SIGKILL)
    task = platform.until_state(task_id, "succeeded", seconds=240)

    assert [attempt["outcome"]["code"] for attempt in task["attempts"]] == ["RANK_KILLED", "COMPLETED"]
    assert (task["step"], task["totalSteps"]) == (120, 120)
    points = platform.items(task_id, "metrics", limit=5000)
    validation = [point["values"]["val_loss"] for point in points if "val_loss" in point["values"]]
    assert validation[-1] < validation[0] - 0.2, "the validation loss falls"
    codes = [event["code"] for event in platform.items(task_id, "events", pageSize=200)]
    for code in ("STATE_RUNNING", "ATTEMPT_ENDED", "SCRIPT_RESUMED", "SCRIPT_CHECKPOINT", "STATE_SUCCEEDED"):
        assert code in codes
    assert codes.count("STATE_SUCCEEDED") == 1
    checkpoints = platform.items(task_id, "checkpoints")
    assert max(checkpoint["step"] for checkpoint in checkpoints) == 120
    assert {checkpoint["attempt"] for checkpoint in checkpoints} == {1, 2}
    log = platform.api.get(f"/training-tasks/{task_id}/logs", params={"rank": 2, "attempt": 2}).json()["data"]["lines"]
    assert any("World Size: 4" in line["text"] for line in log)
    assert platform.strays() == []


def test_the_small_variant_of_each_use_case_trains(platform):
    """Fine-tuning on one machine, data parallel over two, tensors and pipeline split."""
    started = {}
    for key in ("llama2-7b", "bert-large", "gpt3-175b"):
        template = platform.api.get(f"/task-templates/{key}").json()["data"]["small"]
        assert template["missing"] == []
        created = platform.api.post("/training-tasks", json=template["request"])
        assert created.status_code == 201, created.text
        started[key] = created.json()["data"]["taskId"]
    for key, task_id in started.items():
        task = platform.until_state(task_id, "succeeded", seconds=300)
        assert (task["step"], task["attempt"]) == (4, 1), key
        assert 0 < task["loss"] < 12, key
    assert platform.strays() == []


def test_fourteen_ranks_run_as_previewed(platform):
    environments = ["env-001", "env-003", "env-005"]
    request = platform.request(environments, hyperparameters={"totalSteps": 5, "batchSize": 2, "evalBatches": 1})
    preview = platform.api.post("/training-tasks/preview", json=request).json()["data"]
    assert preview["problems"] == []
    task_id = platform.create(environments, hyperparameters=request["hyperparameters"])
    platform.until_state(task_id, "succeeded", seconds=300)

    plan = platform.api.get(f"/training-tasks/{task_id}/plan").json()["data"]
    as_run = json.dumps(plan).replace(task_id, "task-preview")
    (began,) = (e for e in platform.items(task_id, "events", pageSize=200) if e["code"] == "ATTEMPT_BEGAN")
    if began["params"]["port"] != platform.master_port:  # somebody else listens there
        as_run = as_run.replace(str(began["params"]["port"]), str(platform.master_port))
    assert json.loads(as_run)["files"] == preview["files"]
    assert json.loads(as_run)["artifacts"] == preview["artifacts"]
    for rank, expected in enumerate(preview["ranks"]):
        line = f"[Rank {rank}] World Size: 14, Local Rank: {expected['localRank']}"
        assert line in platform.log(task_id, rank), f"rank {rank} says where it is"


def test_a_stream_delivers_everything_once_over_a_broken_connection(platform):
    task_id = platform.create(["env-001"], hyperparameters={"totalSteps": 40, "logEvery": 1, "stepDelay": 0.05})
    url = f"/training-tasks/{task_id}/stream"
    steps: list[int] = []
    states: list[str] = []
    events: list[int] = []
    lines: list[tuple[int, int]] = []
    resume, over, connections = "", False, 0
    while not over:
        connections += 1
        assert connections < 50
        with platform.api.stream("GET", url, params={"logs": "all"}, headers={"Last-Event-ID": resume}) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            for count, (position, name, data) in enumerate(messages(response)):
                resume = position
                match name:
                    case "metric":
                        steps += [point["step"] for point in data["items"] if "loss" in point["values"]]
                    case "status":
                        states.append(data["status"])
                    case "event":
                        events.append(data["id"])
                    case "log":
                        lines += [(data["rank"], line["offset"]) for line in data["lines"]]
                    case "end":
                        over = True
                if over or count == 8:
                    break
    assert connections > 1
    assert steps == list(range(1, 41))
    assert states[-1] == "succeeded"
    assert events == sorted(set(events))
    assert events == [event["id"] for event in platform.items(task_id, "events", pageSize=200)]
    assert len(lines) == len(set(lines))
    for rank in (0, 1):
        assert sum(1 for r, _ in lines if r == rank) == len(platform.log(task_id, rank).splitlines())


def test_a_custom_script_runs_with_its_arguments_and_variables(platform):
    (platform.data / "workspace").mkdir(exist_ok=True)
    (platform.data / "workspace" / "own.py").write_text(
        "import os, sys, json\nprint(json.dumps({'step': 1, 'loss': 1.5}))\n"
        "print(sys.argv[1:], os.environ['MINE'], json.loads(os.environ['FERMI_HYPERPARAMETERS']))\n"
    )
    task_id = platform.create(
        ["env-001"], entrypoint={"script": "own.py", "args": ["--a b", "'"]}, env={"MINE": "x y"},
        hyperparameters={"anything": {"goes": True}},
    )  # fmt: skip
    task = platform.until_state(task_id, "succeeded")
    assert (task["step"], task["loss"]) == (1, 1.5)
    assert "['--a b', \"'\"] x y {'anything': {'goes': True}}" in platform.log(task_id, 1)


def test_a_retried_task_resumes_the_stopped_one(platform):
    hyperparameters = {"totalSteps": 60, "checkpointEvery": 10, "stepDelay": 0.05}
    first = platform.create(["env-001"], hyperparameters=hyperparameters)
    until(lambda: platform.items(first, "checkpoints"), seconds=120, what="a checkpoint")
    platform.api.post(f"/training-tasks/{first}/stop").raise_for_status()
    platform.until_state(first, "stopped")
    saved = max(checkpoint["step"] for checkpoint in platform.items(first, "checkpoints"))
    answer = platform.api.post(f"/training-tasks/{first}/retry")
    assert answer.status_code == 201, answer.text
    second = answer.json()["data"]["taskId"]
    platform.until_state(second, "succeeded")
    assert min(point["step"] for point in platform.items(second, "metrics")) > saved
