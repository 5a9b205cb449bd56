"""A sweep over a small script on the local engine: its trials are ordinary tasks, rungs pause them by their checkpoint,
and no step is trained twice."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.platform_process import ROOT, Running

pytestmark = pytest.mark.e2e

SCRIPT = """
import argparse, json, os, signal, sys, time
words = argparse.ArgumentParser()
words.add_argument("--lr", type=float)
lr = words.parse_args().lr
assert os.environ["FERMI_PARAM_LR"] == str(lr)
assert json.loads(os.environ["FERMI_HYPERPARAMETERS"])["lr"] == lr
folder, done = os.environ["FERMI_CHECKPOINT_DIR"], []
os.makedirs(folder, exist_ok=True)
signal.signal(signal.SIGTERM, lambda *_: done.append(1))
start = 0
if os.environ["FERMI_RESUME_FROM"]:
    with open(os.environ["FERMI_RESUME_FROM"]) as file:
        start = json.load(file)["step"]
    print(json.dumps({"event": "resumed", "step": start}), flush=True)
for step in range(start + 1, 91):
    print(json.dumps({"step": step, "loss": lr + 1 / step}), flush=True)
    time.sleep(0.05)
    if done or step % 30 == 0:
        path = os.path.join(folder, f"{step}.json")
        with open(path, "w") as file:
            json.dump({"step": step}, file)
        print(json.dumps({"event": "checkpoint", "step": step, "path": path}), flush=True)
    if done:
        sys.exit(143)
"""


def call(platform: Running, *words: str) -> Any:
    command = [sys.executable, "-m", "fermi.cli", *words, "-o", "json", "--lang", "en"]
    kept = {name: value for name, value in platform.env.items() if name not in ("FERMI_URL", "FERMI_TOKEN")}
    ended = subprocess.run(command, env=kept, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.timeout(600)
def test_a_sweep_pauses_and_promotes_its_trials_and_trains_no_step_twice(platform: Running, tmp_path: Path) -> None:
    script = platform.data / "workspace" / "trial.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps({
        "name": "rates",
        "objective": {"metric": "loss", "value": "last"},
        "method": "grid",
        "parameters": {"lr": {"values": [0.4, 0.1, 0.3, 0.2]}},
        "pruning": {"method": "asha", "minSteps": 20, "maxSteps": 90, "reduction": 2},
        "parallel": 2,
        "request": {
            "taskName": "trial", "environmentIds": ["env-001"], "datasetId": None, "datasetVersionId": None,
            "distributedConfig": {"worldSize": 1}, "entrypoint": {"script": "trial.py", "args": ["${sweep.args}"]},
            "minRunSeconds": 0,
        },
    }))  # fmt: skip
    found = call(platform, "sweep", str(file), "--wait")
    assert (found["status"], found["reason"]["code"]) == ("ended", "SWEEP_GRID_DONE")
    assert found["bestTrial"]["parameters"] == {"lr": 0.1}
    trials = call(platform, "sweep", "trials", found["id"])["items"]
    states = {one["parameters"]["lr"]: one["status"] for one in trials}
    assert states[0.1] == "complete"
    assert "pruned" in states.values()
    for trial in trials:
        steps = [one["step"] for one in call(platform, "metrics", trial["taskId"])["items"]]
        assert steps == list(range(1, len(steps) + 1)), trial
    cloned = call(platform, "sweep", "clone", found["id"], "--from-start", "--name", "again")
    assert call(platform, "get", cloned["taskId"])["taskName"] == "again"
