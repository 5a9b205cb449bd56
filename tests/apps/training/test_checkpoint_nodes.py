"""What several nodes report of one checkpoint becomes one row, complete once nothing of it is missing."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from apps.common.texts import render_text
from apps.training.core import checkpoint_choice, checkpoint_nodes
from apps.training.logs.ingest import LogReader
from apps.training.models import Checkpoint, Finding, MetricPoint, Node, Task, TaskParameter
from apps.training.presenters import checkpoint_marks
from fermi.engines.agent.engine import AgentBackend
from fermi.engines.local.engine import LocalBackend
from fermi.metrics.records import FoundCheckpoint
from fermi.runner.record_frames import format_frame
from tests.apps.attempts import write

AT = datetime(2026, 11, 28, tzinfo=UTC)


def report(
    node: str, parts: str = "", needed: int | None = None, *, layout: str = "dcp", step: int = 20, identity: str = "",
    attempt: int = 1, size: int = 10,
) -> Checkpoint:  # fmt: skip
    found = FoundCheckpoint(
        "/out/step", step, size, layout, None, identity or f"{ord(node[-1]):x}-{step:x}", parts, needed
    )
    nodes = {node: checkpoint_nodes.describe_report(found, f"gn-{node[-1]}")}
    return Checkpoint(attempt=attempt, step=step, path=found.path, size_bytes=size, at=AT, layout=layout, nodes=nodes)


def join(*reports: Checkpoint) -> tuple[Checkpoint, list[bool]]:
    row, told = None, []
    for one in reports:
        row, is_new = checkpoint_nodes.join_report(row, one)
        told.append(is_new)
    assert row
    return row, told


HEAD, OTHER = ("env-a", "0-1", 4), ("env-b", "2-3")


@pytest.mark.parametrize("head_first", [True, False])
def test_a_checkpoint_is_complete_once_the_parts_of_all_nodes_are_known(head_first: bool) -> None:
    reports = [report(*HEAD), report(*OTHER, layout="part", size=7)]
    row, told = join(*(reports if head_first else reports[::-1]))
    assert (row.is_complete, told, row.layout, row.size_bytes) == (True, [False, True], "dcp", 17)
    assert checkpoint_nodes.list_node_names(row.nodes) == (["gn-a", "gn-b"] if head_first else ["gn-b", "gn-a"])


def test_one_of_which_parts_are_missing_stays_incomplete() -> None:
    row, told = join(report(*HEAD), report("env-b", "2", layout="part"))
    assert (row.is_complete, told) == (False, [False, False])
    assert checkpoint_nodes.count_parts(row.nodes) == (3, 4)
    assert not join(report(*OTHER, layout="part"))[0].is_complete, "nobody has completed it"


def test_a_folder_that_all_nodes_see_is_one_checkpoint_and_said_once() -> None:
    row, told = join(*(report(f"env-{name}", identity="1-2") for name in "abc"))
    assert (row.is_complete, told, row.size_bytes) == (True, [True, False, False], 10)


def test_the_same_path_saved_again_is_another_checkpoint() -> None:
    row, told = join(report("env-a"), report("env-b"), report("env-a", step=40))
    assert (row.step, list(row.nodes), told) == (40, ["env-a"], [True, False, True])
    row, told = join(report("env-a", attempt=2), report("env-b", attempt=1))
    assert (row.attempt, list(row.nodes), told) == (2, ["env-a"], [True, False])


def test_what_nobody_can_know_counts_as_complete() -> None:
    assert join(report("env-a", "0-1", None))[0].is_complete


# --- stored, and chosen from ---


@pytest.fixture
def two_nodes(task: Task) -> Task:
    """Ranks 0 and 1 on gn-a, rank 2 on gn-b."""
    for number, (name, processes) in enumerate((("gn-a", 2), ("gn-b", 1))):
        Node.objects.create(task=task, node_rank=number, name=name, zone="z", processes=processes)
    task.spec = {"checkpoint_dir": f"{task.pk}", "resume_from": "", "entrypoint": {"script": "train.py"}}
    task.save()
    return task


def tell(task: Task, rank: int, **record: Any) -> None:
    text = json.dumps({"source": "runner", "time": AT.timestamp(), **record}).encode()
    write(task, format_frame(text, own_line=True), rank=rank)


def say_parts(task: Task, path: str, step: int) -> None:
    about = {"path": path, "step": step, "size_bytes": 10}
    first = {**about, "layout": "dcp", "identity": "a-1", "parts": "0-1", "parts_needed": 3}
    tell(task, 0, checkpoint=first)
    LogReader(task, 1).read()
    tell(task, 2, checkpoint={**about, "layout": "part", "identity": "b-1", "parts": "2"})


@pytest.mark.django_db(transaction=True)
def test_only_complete_ones_are_resumed_from_marked_and_said(two_nodes: Task, settings: Any) -> None:
    top = f"{settings.DATA_DIR}/checkpoints/{two_nodes.pk}"
    say_parts(two_nodes, f"{top}/step-20", 20)
    LogReader(two_nodes, 1).read()
    say_parts(two_nodes, f"{top}/step-40", 40)  # of which rank 2's node has not been read
    rows = {row.step: row for row in Checkpoint.objects.filter(task=two_nodes)}
    assert {step: row.is_complete for step, row in rows.items()} == {20: True, 40: False}
    assert {key: one["name"] for key, one in rows[20].nodes.items()} == {"gn-a": "gn-a", "gn-b": "gn-b"}
    assert list(two_nodes.events.filter(code="CHECKPOINT_FOUND").values_list("params__step", flat=True)) == [20]
    assert checkpoint_choice.choose_resume_path(two_nodes)[0] == f"{top}/step-20"
    marks = checkpoint_marks.find_marks(two_nodes)
    assert marks.newest == f"{top}/step-20"
    row = {"path": f"{top}/step-40", "step": 40, "valLoss": None, "nodes": rows[40].nodes, "complete": False}
    gap = render_text("CHECKPOINT_INCOMPLETE", {"known": 2, "needed": 3, "nodes": "gn-a"})[0]
    assert checkpoint_marks.mark_row(row, marks)["note"] == gap


@pytest.mark.django_db(transaction=True)
def test_a_node_that_lacks_the_checkpoint_is_named_in_a_finding(two_nodes: Task) -> None:
    tell(two_nodes, 2, notice={"code": "RESUME_NOT_ON_NODE", "params": {"path": "/x/ckpt.pt"}})
    tell(two_nodes, 2, notice={"code": "ANYTHING", "params": {}})
    LogReader(two_nodes, 1).read()
    found = Finding.objects.get(task=two_nodes)
    assert (found.code, found.params) == ("CHECKPOINT_NOT_ON_NODE", {"path": "/x/ckpt.pt", "node": "gn-b"})


@pytest.mark.django_db(transaction=True)
def test_where_the_platform_sees_no_files_the_nodes_that_have_them_are_known(two_nodes: Task, settings: Any) -> None:
    top = Path(settings.DATA_DIR, "checkpoints", two_nodes.pk)
    say_parts(two_nodes, f"{top}/step-20", 20)
    LogReader(two_nodes, 1).read()
    workers, here = AgentBackend({}), LocalBackend({"data_dir": str(settings.DATA_DIR)})
    nodes = checkpoint_nodes.find_nodes_apart(workers, f"{top}/step-20")
    assert nodes
    chosen = [("gn-a", "gn-a"), ("gn-c", "gn-c")]
    assert checkpoint_nodes.list_absent_nodes(nodes, chosen) == ["gn-c"]
    assert checkpoint_nodes.find_nodes_apart(here, f"{top}/step-20") is None, "what is not here is nowhere"
    assert checkpoint_nodes.find_nodes_apart(workers, f"{top}/step-99") is None
    top.mkdir(parents=True)
    assert checkpoint_nodes.find_nodes_apart(workers, f"{top}/step-20") is None, "the platform sees the folder"


@pytest.mark.django_db(transaction=True)
def test_the_best_is_what_the_script_says_or_else_by_its_loss_or_score(task: Task) -> None:
    for step, accuracy in ((20, 0.9), (40, 0.5)):
        Checkpoint.objects.create(task=task, attempt=1, step=step, path=f"/o/{step}", at=AT)
        MetricPoint.objects.create(
            task=task, attempt=1, rank=0, step=step, at=AT, values={"eval_accuracy": accuracy, "loss": 1.0}
        )
    marks = checkpoint_marks.find_marks(task)
    assert (marks.newest, marks.best, marks.best_by) == ("/o/40", "/o/20", "eval_accuracy")
    Checkpoint.objects.update(val_loss=2.0)
    Checkpoint.objects.filter(step=40).update(val_loss=1.0)
    marks = checkpoint_marks.find_marks(task)
    assert (marks.best, marks.best_by) == ("/o/40", "val_loss")
    TaskParameter.objects.create(task=task, name="metric_for_best_model", value="accuracy", source="transformers")
    assert checkpoint_marks.find_marks(task).best == "/o/20"
    Checkpoint.objects.filter(step=40).update(nodes={"env-a": {"best_step": 40}})
    marks = checkpoint_marks.find_marks(task)
    assert (marks.best, marks.best_by) == ("/o/40", "best_model_checkpoint")
    row = {"path": "/o/40", "step": 40, "valLoss": None, "nodes": {}, "complete": True}
    assert checkpoint_marks.mark_row(row, marks)["bestBy"] == "best_model_checkpoint"
