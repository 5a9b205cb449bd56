"""Rows that are inserted in the quick way are those that Django would have stored."""

from copy import copy
from typing import Any

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.test.utils import CaptureQueriesContext, isolate_apps

from apps.accounts.models import AuditEvent, Project
from apps.clusters.models import AvailabilityZone, DevEnvironment
from apps.common.bulk_insert import insert
from apps.common.clock import now
from apps.files.models import Outputs
from apps.training.models import Event, Node, Task

pytestmark = [pytest.mark.storage, pytest.mark.django_db]


def columns(row: models.Model, *but: str) -> dict[str, Any]:
    [found] = type(row)._default_manager.filter(pk=row.pk).values()
    return {name: value for name, value in found.items() if name not in but}


def test_they_hold_what_django_would_have_stored(task: Task) -> None:
    task.spec = {"a": [1, None, {"b": "ü"}], "n": 0.5}
    task.select, task.place, task.paused_at, task.idempotency_key = {"nodes": 2}, 1.5, now(), "key"
    for number, idempotency_key in enumerate((None, "")):
        quick, plain = copy(task), copy(task)
        quick.pk, plain.pk, quick.idempotency_key = f"quick-{number}", f"plain-{number}", idempotency_key
        insert(quick)
        plain.save(force_insert=True)
        assert columns(quick, "id", "idempotency_key") == columns(plain, "id", "idempotency_key")
        assert columns(quick)["idempotency_key"] == idempotency_key
        plain.delete()
        assert not quick._state.adding
        quick.name = "changed"
        quick.save()
        assert Task.objects.get(pk=quick.pk).name == "changed"


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"1": "Ω", "2": [1.0, 1e300, -0.5, True, None, 2**63]},
        {1: "a key that is a number", None: "none"},
        {"beyond 64 bits": 2**70},
        ["\ud800"],
        "text",
        7,
        0.1,
    ],
)
def test_json_is_what_django_would_have_stored(task: Task, data: Any) -> None:
    if connection.vendor == "postgresql" and data == ["\ud800"]:
        pytest.skip("PostgreSQL holds no half of a surrogate pair")
    quick, plain = (AuditEvent(action=action, target="x", data=data) for action in ("quick", "plain"))
    insert(quick)
    plain.save()
    assert AuditEvent.objects.get(action="quick").data == AuditEvent.objects.get(action="plain").data


def test_json_that_django_refuses_is_refused(task: Task) -> None:
    with pytest.raises(TypeError):
        insert(AuditEvent(action="quick", target="x", data={"at": now()}))


def test_defaults_and_times_of_making_are_there(task: Task) -> None:
    began = now()
    insert(AuditEvent(action="a.b", target="x", project=task.project, data={"n": None}))
    [found] = AuditEvent.objects.all()
    assert (found.actor, found.project, found.data) == (None, task.project, {"n": None})
    assert began <= found.at <= now()


def test_any_number_goes_in_order(task: Task) -> None:
    insert()
    insert(*(Event(task=task, attempt=1, at=now(), kind="k", code=str(number)) for number in range(1_000)))
    assert list(Event.objects.order_by("pk").values_list("code", flat=True)) == [str(n) for n in range(1_000)]


def test_several_are_one_statement(task: Task) -> None:
    place = {"cluster": task.cluster, "zone": AvailabilityZone.objects.create(name="z")}
    machine = DevEnvironment.objects.create(name="n", project=task.project, **place)
    rows = [
        Node(task=task, node_rank=rank + 7, environment=machine, name="n", zone="z", gpu_type="", processes=1)
        for rank in range(3)
    ]
    with CaptureQueriesContext(connection) as asked:
        insert(*rows)
    assert len(asked.captured_queries) == 1
    assert Node.objects.filter(task=task, node_rank__gte=7).count() == 3


def test_what_is_there_is_kept_or_refused(task: Task) -> None:
    Project.objects.create(pk="other", name="other")
    mine = {"task": task.pk, "due_at": now()}
    insert(Outputs(project=task.project, **mine))
    insert(Outputs(project_id="other", **mine), ignore_conflicts=True)
    assert Outputs.objects.get().project == task.project
    with pytest.raises(IntegrityError), transaction.atomic():
        insert(Outputs(project_id="other", **mine))
    assert Outputs.objects.get().project == task.project


@isolate_apps("apps.common")
def test_a_model_with_a_column_that_the_database_fills_is_refused() -> None:
    class Filled(models.Model):
        at = models.DateTimeField(db_default=now())

        class Meta:
            app_label = "common"

    with pytest.raises(TypeError, match="at"):
        insert(Filled())
