"""MLflow's own client in ranks, and outside: the platform is its server."""

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.platform_process import ROOT, WARM, Running

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow's client is not installed"),
]
SETTINGS = WARM

SCRIPT = """
import os, sys, mlflow

rank, out = os.environ["RANK"], os.environ["FERMI_OUTPUT_DIR"]
first = os.path.join(out, f"attempt-one-{rank}")
again = os.path.exists(first)
open(first, "w").close()
mlflow.set_experiment("the experiment")
with mlflow.start_run(run_name=f"rank {rank}", tags={"team": "a"}) as run:
    mlflow.log_params({"lr": 0.5 if again else 0.25, "rank": rank})
    for step in range(10, 13) if again else range(10):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_text("hello", "texts/a.txt")
    with mlflow.start_run(run_name="inner", nested=True):
        mlflow.log_metric("loss", 99.0)
    if not again:
        sys.exit(3)
    text = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/texts/a.txt")
    newest = mlflow.get_run(run.info.run_id).data.metrics["loss"]
    found = mlflow.MlflowClient().search_runs(
        [run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{os.environ['FERMI_TASK_ID']}'"
    )
    print("read", text, newest, len(found) > 0, flush=True)
"""

READER = """
import sys, mlflow
client = mlflow.MlflowClient()
run = client.get_run(sys.argv[1])
history = client.get_metric_history(sys.argv[1], "loss")
files = [file.path for file in client.list_artifacts(sys.argv[1], "texts")]
print(run.info.status, run.data.params["lr"], run.data.metrics["loss"], len(history))
print(files, client.get_experiment(run.info.experiment_id).name)
"""


def submit(platform: Running, name: str, text: str, **changes: Any) -> str:
    script = platform.data / "workspace" / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(text)
    return platform.create(
        ["env-001"], datasetId=None, datasetVersionId=None, modelId=None, entrypoint={"script": name}, **changes
    )


def read(platform: Running, code: str, *words: str) -> str:
    env = {
        **os.environ,
        "MLFLOW_TRACKING_URI": f"{platform.url}/mlflow",
        "MLFLOW_TRACKING_TOKEN": platform.api.headers["Authorization"].removeprefix("Bearer "),
    }
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=env, cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ranks_log_to_their_task_and_go_on_after_a_restart(platform: Running) -> None:
    task = submit(platform, "logs.py", SCRIPT)
    done = platform.until_state(task, "succeeded", "failed", seconds=300)
    assert (done["status"], done["attempt"]) == ("succeeded", 2), platform.log(task)
    assert f"read hello {1 / 13} True" in platform.log(task, 0, 2)
    status, lr, loss, count = read(platform, READER, task).splitlines()[0].split()
    assert (status, lr, float(loss), int(count)) == ("FINISHED", "0.5", 1 / 13, 13)
    assert read(platform, READER, task).splitlines()[1] == "['texts/a.txt'] the experiment"
    points = [point for point in platform.items(task, "metrics") if "loss" in point["values"] and point["rank"] == 0]
    assert [point["step"] for point in points] == list(range(13)), "each once, without those of the inner run"


def test_a_server_that_the_task_names_is_kept(platform: Running) -> None:
    text = 'import os\nprint("uri", os.environ["MLFLOW_TRACKING_URI"], "MLFLOW_TRACKING_TOKEN" in os.environ)\n'
    task = submit(platform, "uri.py", text, env={"MLFLOW_TRACKING_URI": "http://127.0.0.1:9/mine"})
    platform.until_state(task, "succeeded", seconds=180)
    assert "uri http://127.0.0.1:9/mine False" in platform.log(task)
