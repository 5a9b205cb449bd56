"""What nodes report that they run with, from ranks' logs into tables."""

import json
from datetime import timedelta
from typing import Any

import pytest

from apps.common.clock import now
from apps.training.core import facts
from apps.training.logs.ingest import LogReader
from apps.training.models import AttemptFacts, FactSet, LogCursor, Node, Task
from fermi.runner.record_frames import format_frame
from tests.apps.attempts import begin_attempt, write

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def report(task: Task, *found: dict[str, Any], attempt: int = 1, rank: int = 0) -> None:
    for one in found:
        record = {"source": "facts", "facts": one}
        write(task, format_frame(json.dumps(record).encode(), own_line=True), attempt=attempt, rank=rank)
    LogReader(task, attempt).read()


def list_packages(text: str, part: int = 0, parts: int = 1, key: str = "1") -> dict[str, Any]:
    return {"packages": text, "part": part, "parts": parts, "key": key}


def list_variables(**found: str) -> dict[str, Any]:
    return {"variables": found, "part": 0, "parts": 1, "key": "1"}


def test_a_node_has_what_it_reported_in_several_records_and_passes(task: Task) -> None:
    Node.objects.create(task=task, node_rank=0, name="dev-a", zone="z", processes=1)
    report(task, {"python": "3.11.4", "cores": 8}, list_packages("a==1", 0, 2))
    row = AttemptFacts.objects.get(task=task)
    assert (row.values, row.packages, row.node_rank) == ({"python": "3.11.4", "cores": 8}, None, 0)
    assert row.node == "dev-a"
    report(task, list_packages("b==2", 1, 2), {"driver": "550.54.15"})
    row.refresh_from_db()
    assert row.values == {"python": "3.11.4", "cores": 8, "driver": "550.54.15"}
    assert row.packages is not None
    assert row.packages.items == {"a": "1", "b": "2"}
    assert LogCursor.objects.get(task=task, rank=0).state["facts"] == {}


def test_a_set_is_stored_once_however_many_attempts_have_it(task: Task) -> None:
    report(task, list_packages("a==1 b==2"))
    begin_attempt(task, 2)
    report(task, list_packages("b==2 a==1"), attempt=2)
    begin_attempt(task, 3)
    report(task, list_packages("a==1"), attempt=3)
    assert FactSet.objects.count() == 2
    assert [one.attempt for one in facts.list_newest_facts(task.pk)] == [3]
    assert [one.packages.items for one in facts.list_newest_facts(task.pk, 1) if one.packages] == [{"a": "1", "b": "2"}]


def test_the_hash_of_a_node_is_not_what_is_stored(task: Task) -> None:
    report(task, list_variables(NCCL_DEBUG="0123456789abcdef", HF_TOKEN=""))
    [found] = facts.list_newest_facts(task.pk)
    assert found.variables is not None
    assert found.variables.items["HF_TOKEN"] == ""
    assert found.variables.items["NCCL_DEBUG"] not in ("", "0123456789abcdef")


def test_sets_that_no_node_has_are_deleted_after_a_day(task: Task) -> None:
    report(task, list_packages("a==1"))
    FactSet.objects.create(digest="0" * 64, kind="packages", items={}, used_at=now())
    assert facts.delete_unused_sets() == 0
    FactSet.objects.update(used_at=now() - timedelta(days=2))
    assert facts.delete_unused_sets() == 1
    assert AttemptFacts.objects.filter(packages=FactSet.objects.get()).exists()
    report(task, list_packages("a==1", key="2"))
    assert FactSet.objects.get().used_at > now() - timedelta(hours=1)


def test_facts_go_with_their_task(task: Task) -> None:
    report(task, list_packages("a==1"))
    task.delete()
    assert not AttemptFacts.objects.exists()
