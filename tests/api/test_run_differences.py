"""What differs between two runs, and what each ran with."""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apps.code import store
from apps.common.clock import now
from apps.training.core import facts, metric_blocks, metric_curves
from apps.training.core.facts import NodePlace, ReportedFacts
from apps.training.core.parameters import store_parameters
from apps.training.models import Attempt, MetricPoint, Task
from fermi.jobs import snapshot
from fermi.jobs.snapshot import SnapshotFile
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "platform"
    settings.DATA_DIR.mkdir()


def store_code(**files: str) -> str:
    entries = []
    for name, text in files.items():
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        store.write_blob(io.BytesIO(content), digest, len(content))
        entries.append(SnapshotFile(f"{name}.py", snapshot.PLAIN_MODE, len(content), digest))
    manifest = snapshot.serialize_manifest(entries)
    store.write_manifest(manifest)
    return snapshot.compute_snapshot_id(manifest)


@pytest.fixture
def make_run(colleague: Api) -> Callable[..., Task]:
    """Return a maker of tasks that have run: with a code snapshot, parameters, packages, and a loss of 400 points that
    jumps at the step `jump`."""

    def make(
        code: str = "", *, seed: int = 0, packages: str = "", jump: int = 0, parameters: Any = None, points: int = 400
    ) -> Task:
        given = {**DOCUMENT, "hyperparameters": {"learningRate": 0.01, "seed": seed}}
        task = Task.objects.get(pk=colleague.post("/training-tasks", given).data["taskId"])
        task.spec["code"] = {"snapshot": code, "origin": {"commit": "c" * 40}} if code else None
        task.attempt = 1
        task.save()
        Attempt.objects.create(task=task, number=1, master_port=29500, created_at=task.created_at)
        store_parameters(task.pk, parameters or {}, "wandb")
        if packages:
            items = dict(word.split("==") for word in packages.split())
            variables = {"NCCL_DEBUG": "0" * 16, "HF_TOKEN": ""}
            reported = ReportedFacts(
                {"python": "3.11.4", "gpus": {"NVIDIA A100": 8}}, {"packages": items, "variables": variables}
            )
            facts.store_facts(task.pk, 1, NodePlace(0, "env-001", task.nodes.get(node_rank=0).name), reported)
        noise = np.random.default_rng(seed).normal(0, 0.05, points)
        steps = range(1, points + 1)
        MetricPoint.objects.bulk_create(
            MetricPoint(task=task, attempt=1, rank=0, step=step, at=now(), values={
                "loss": 2.0 + float(noise[step - 1]) + (0.5 if jump and step >= jump else 0.0), "lr": 0.1,
            }) for step in steps
        )  # fmt: skip
        return task

    return make


def compare(api: Api, left: Task, right: Task) -> Any:
    return api.get("/runs/differences", left=left.pk, right=right.pk).data


def list_kinds(found: Any) -> list[tuple[str, str]]:
    return [(one["kind"], one["name"]) for one in found["differences"]]


def test_a_changed_line_is_named_first_with_its_lines(colleague: Api, make_run: Any) -> None:
    before, after = store_code(train="LR = 1\nprint(LR)\n"), store_code(train="LR = 2\nprint(LR)\n")
    left, right = make_run(before, packages="torch==2.3.1"), make_run(after, packages="torch==2.4.0")
    found = compare(colleague, left, right)
    assert list_kinds(found) == [("code", ""), ("package", "torch")]
    assert "train.py" in found["differences"][0]["message"]
    [file] = found["files"]
    assert "-LR = 1\n+LR = 2\n" in file["diff"]
    package = found["differences"][1]
    assert (package["left"], package["right"]) == ("2.3.1", "2.4.0")


def test_runs_of_the_same_things_do_not_differ(colleague: Api, make_run: Any) -> None:
    code = store_code(train="pass\n")
    found = compare(colleague, *(make_run(code, packages="torch==2.3.1") for _ in range(2)))
    assert (found["differences"], found["files"], found["gaps"]) == ([], [], [])
    [curve] = found["curves"]
    assert (curve["metric"], curve["verdict"], curve["identicalUntil"]) == ("loss", "together", 400)


def test_the_step_at_which_curves_part_is_told_with_what_the_noise_is_known_from(colleague: Api, make_run: Any) -> None:
    code = store_code(train="pass\n")
    left, right = make_run(code, seed=1), make_run(code, seed=2, jump=200, parameters={"dropout": 0.5})
    [alone] = compare(colleague, left, right)["curves"]
    assert (alone["verdict"], alone["basis"], alone["sisters"]) == ("parted", "own", 0)
    assert abs(alone["step"] - 200) <= 10
    for seed in (3, 4, 5):
        make_run(code, seed=seed)
    make_run(code, seed=6, jump=1, parameters={"dropout": 0.5, "depth": 3})
    [known] = compare(colleague, left, right)["curves"]
    assert (known["verdict"], known["basis"], known["sisters"]) == ("parted", "sisters", 4)
    assert abs(known["step"] - 200) <= 10
    assert "4" in known["message"]


def test_steps_that_an_attempt_made_again_count_as_the_newest_attempt_has_them(colleague: Api, make_run: Any) -> None:
    left, right = make_run(seed=1), make_run(seed=2, jump=200)
    noise = np.random.default_rng(9).normal(0, 0.05, 400)
    MetricPoint.objects.bulk_create(
        MetricPoint(task=right, attempt=2, rank=0, step=step, at=now(), values={"loss": 2.0 + float(noise[step - 1])})
        for step in range(150, 401)
    )
    [curve] = compare(colleague, left, right)["curves"]
    assert (curve["verdict"], curve["points"]) == ("together", 400)


def test_curves_that_are_not_copied_yet_are_compared_as_far_as_they_are(
    colleague: Api, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_curves, "MAX_NEW_ROWS", 1)
    monkeypatch.setattr(metric_blocks, "BATCH_ROWS", 300)
    left, right = make_run(seed=1, points=900), make_run(seed=2, points=900, jump=600)
    found = compare(colleague, left, right)
    assert "DIVERGENCE_CURVES_INCOMPLETE" in [one["code"] for one in found["gaps"]]
    while "DIVERGENCE_CURVES_INCOMPLETE" in [one["code"] for one in found["gaps"]]:
        found = compare(colleague, left, right)
    [curve] = found["curves"]
    assert (curve["verdict"], curve["points"]) == ("parted", 900)
    assert abs(curve["step"] - 600) <= 30


def test_runs_that_differ_in_the_seed_alone_do_not_part(colleague: Api, make_run: Any) -> None:
    code = store_code(train="pass\n")
    runs = [make_run(code, seed=seed) for seed in range(1, 5)]
    found = compare(colleague, runs[0], runs[1])
    assert list_kinds(found) == [("seed", "seed")]
    [curve] = found["curves"]
    assert (curve["verdict"], curve["basis"], curve["sisters"]) == ("together", "sisters", 3)


def test_nothing_is_claimed_of_runs_with_few_points_or_without_facts(colleague: Api, make_run: Any) -> None:
    found = compare(colleague, make_run(points=10), make_run(points=10, jump=5))
    assert found["curves"][0]["verdict"] == "too_few"
    codes = [one["code"] for one in found["gaps"]]
    assert codes.count("DIFFERENCE_PACKAGES_UNKNOWN") == codes.count("DIFFERENCE_CODE_UNKNOWN") == 2
    without = compare(colleague, make_run(points=0), make_run(points=0))
    assert (without["curves"], without["gaps"][-1]["code"]) == ([], "DIVERGENCE_NO_CURVES")


def test_code_that_is_gone_is_said_to_be_gone(colleague: Api, make_run: Any) -> None:
    found = compare(colleague, make_run("a" * 64), make_run("b" * 64))
    assert ("code", "") in list_kinds(found)
    assert found["files"] == []
    assert "DIFFERENCE_CODE_GONE" in [one["code"] for one in found["gaps"]]


def test_facts_are_those_of_the_newest_attempt_without_values_of_variables(colleague: Api, make_run: Any) -> None:
    task = make_run(packages="torch==2.3.1 numpy==1.26.4")
    found = colleague.get(f"/runs/{task.pk}/facts").data
    assert found["attempt"] == 1
    [node] = found["nodes"]
    assert (node["python"], node["gpus"]) == ("3.11.4", [{"type": "NVIDIA A100", "count": 8}])
    assert node["variables"] == [{"name": "HF_TOKEN", "isSecret": True}, {"name": "NCCL_DEBUG", "isSecret": False}]
    assert found["packageSets"] == [
        {"id": node["packageSetId"],
         "packages": [{"name": "numpy", "version": "1.26.4"}, {"name": "torch", "version": "2.3.1"}]}
    ]  # fmt: skip
    assert colleague.get(f"/runs/{task.pk}/facts", attempt=2).data == {
        "taskId": task.pk, "attempt": None, "nodes": [], "packageSets": [],
    }  # fmt: skip


def test_only_who_sees_both_runs_may_compare_them(
    owner: Api, viewer: Api, stranger: Api, anonymous: Api, make_run: Any
) -> None:
    task = make_run()
    for path, query in ((f"/runs/{task.pk}/facts", {}), ("/runs/differences", {"left": task.pk, "right": task.pk})):
        assert [api.get(path, **query).status for api in (owner, viewer, stranger, anonymous)] == [200, 200, 404, 401]
    assert owner.get("/runs/differences", left=task.pk, right="task-none").status == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [({}, "left"), ({"left": "x" * 500, "right": "y"}, "left"), ({"left": "a", "right": "b", "more": 1}, "more")],
)
def test_a_malformed_query_is_refused(colleague: Api, query: dict[str, Any], field: str) -> None:
    answer = colleague.get("/runs/differences", **query)
    assert answer.status == 400
    assert field in answer.problems
