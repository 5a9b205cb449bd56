"""Which run of W&B a task goes on with, and what is reported of runs.

The stand-in is that of `test_tracker_hooks`; with FERMI_TRACKERS_PYTHON the scripts run against the real package.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.metrics.records import parse_record
from tests.unit.probe.test_tracker_hooks import Run

TASK = "task-7kq2m9x4td"
online = pytest.mark.skipif(bool(os.environ.get("FERMI_TRACKERS_PYTHON")), reason="the real one needs a server")
BEGIN = """
import wandb
wandb.init(project="gpt")
print("begun", wandb.run.id)
wandb.finish()
"""


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Any]:
    made: list[Run] = []

    def make() -> Run:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        run = Run(folder)
        run.output = tmp_path / "output"
        run.output.mkdir(exist_ok=True)
        made.append(run)
        return run

    yield make
    for one in made:
        one.given.close()


def list_begun(log: str) -> list[str]:
    return [line.split()[1] for line in log.splitlines() if line.startswith("begun ")]


def begin(make_run: Any, code: str = BEGIN, **env: str) -> list[str]:
    return list_begun(make_run()(code, "wandb", FERMI_TASK_ID=TASK, WANDB_MODE="offline", **env).log)


def test_the_next_attempt_goes_on_with_the_run_of_the_task(make_run: Any) -> None:
    assert begin(make_run, FERMI_ATTEMPT="1") == [TASK]
    assert begin(make_run, FERMI_ATTEMPT="2") == [TASK]
    assert begin(make_run, FERMI_ATTEMPT="2", TORCHELASTIC_RESTART_COUNT="1") == [TASK]


def test_other_ranks_and_further_runs_have_ids_of_their_own(make_run: Any) -> None:
    code = BEGIN + BEGIN + "import subprocess, sys\nif len(sys.argv) < 2:\n"
    code += "    print(subprocess.run([sys.executable, __file__, 'child'], capture_output=True, text=True).stdout)\n"
    ids = begin(make_run, code)
    assert len(ids) == 4
    assert ids[0] == TASK
    assert len({*ids}) == 4
    assert TASK not in begin(make_run, RANK="1", FERMI_ATTEMPT="2")


@pytest.mark.parametrize("own", [{"WANDB_RUN_ID": "mine"}, {"WANDB_RESUME": "auto"}, {"FERMI_TASK_ID": ""}])
def test_what_the_user_names_counts(make_run: Any, own: dict[str, str]) -> None:
    found = make_run()(BEGIN, "wandb", **{"FERMI_TASK_ID": TASK, "WANDB_MODE": "offline", **own})
    assert TASK not in list_begun(found.log)


def test_an_id_that_the_script_passes_counts(make_run: Any) -> None:
    assert begin(make_run, BEGIN.replace('"gpt"', '"gpt", id="mine"')) == ["mine"]
    assert begin(make_run) == [TASK], "and the task's own run has not begun"


def test_an_offline_run_is_reported_with_its_folder(make_run: Any) -> None:
    found = make_run()(BEGIN, "wandb", FERMI_TASK_ID=TASK, WANDB_MODE="offline")
    run = next(one["run"] for one in found.records if "run" in one)
    assert {name: run[name] for name in ("id", "project", "offline")} == {
        "id": TASK, "project": "gpt", "offline": True,
    }  # fmt: skip
    assert run["folder"].startswith("wandb/offline-run-")
    assert run["folder"].endswith(TASK)
    assert "url" not in run


CONFIGURE = """
import os, wandb
wandb.init(project="gpt", config={"attempt": os.environ["FERMI_ATTEMPT"]})
wandb.config.update({"resume_from": os.environ["FERMI_ATTEMPT"]})
wandb.config.world_size = os.environ["FERMI_ATTEMPT"]
print("begun", wandb.run.id, wandb.run.resumed, wandb.config.world_size)
wandb.finish()
"""


@online
def test_a_resumed_run_accepts_what_the_next_attempt_is_configured_with(make_run: Any) -> None:
    first, second = make_run(), make_run()
    second.folder = first.folder
    env = {"FERMI_TASK_ID": TASK, "WANDB_API_KEY": "0123456789" * 4}
    assert f"begun {TASK} False 1" in first(CONFIGURE, "wandb", **env, FERMI_ATTEMPT="1").log
    assert f"begun {TASK} True 2" in second(CONFIGURE, "wandb", **env, FERMI_ATTEMPT="2").log


@online
def test_an_online_run_is_reported_with_its_page(make_run: Any) -> None:
    found = make_run()(BEGIN, "wandb", FERMI_TASK_ID=TASK, WANDB_API_KEY="the-key")
    run = next(one["run"] for one in found.records if "run" in one)
    assert run["url"] == f"https://wandb.ai/ann/gpt/runs/{TASK}"
    assert run["entity"] == "ann"
    assert "offline" not in run
    assert "the-key" not in str(found.records)


def test_what_a_rank_writes_of_a_run_is_kept_as_far_as_it_fits() -> None:
    def parse(text: str) -> Any:
        record = parse_record(f'{{"source":"wandb","run":{text}}}'.encode())
        return record and record.run

    assert parse('{"id":"a","url":"https://w.example/a"}').url == "https://w.example/a"
    for url in ("javascript:alert(1)", "https://ann:key@w.example/a", "http://[", "https://w.example/ a", "ftp://w"):
        assert parse(f'{{"id":"a","url":"{url}"}}').url == ""
    for folder in ("../x", "/etc", "a/../b", "a//b", ".", ""):
        assert parse(f'{{"id":"a","folder":"{folder}"}}').folder == ""
    assert parse('{"id":"a","folder":"wandb/offline-run-1-a","offline":true}').folder == "wandb/offline-run-1-a"
    for wrong in ("null", "[]", '{"id":1}', '{"id":""}', '{"id":"a/b"}', '{"id":"' + "a" * 200 + '"}'):
        assert parse(wrong) is None
