"""Queries that are compiled once give what Django gives, whoever asks and however often."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from django.db import connection, models
from django.db.models import F, Prefetch, Q
from django.forms.models import model_to_dict
from django.test.utils import CaptureQueriesContext, isolate_apps

from apps.accounts.models import User
from apps.common import pass_claims
from apps.common.clock import now
from apps.common.sql import CompiledInstances, CompiledQuery, list_columns, make_key_parameters
from apps.scheduling.models import Limits
from apps.training.models import Attempt, Task
from apps.training.reconcile import reconciler
from tests.apps.attempts import begin_attempt

pytestmark = [pytest.mark.database, pytest.mark.django_db]

ID = list_columns(Task, "id")
COLUMNS = ("id", "project__name", "distributed", "spec", "progress", "created_at", "ended_at", "world_size")


def test_rows_equal_those_of_values(task: Task) -> None:
    task.spec = {"a": [1, None, {"b": "ü"}], "n": 0.5}
    task.created_at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)  # a whole second, which SQLite writes shorter
    task.save()
    query = CompiledQuery(
        lambda key: Task.objects.filter(pk=key).annotate(twice=F("world_size") * 2),
        list_columns(Task, *COLUMNS, twice=None),
    )
    for _ in range(2):
        assert query.fetch(key=task.pk) == list(
            Task.objects.filter(pk=task.pk).values(*COLUMNS, twice=F("world_size") * 2)
        )


def test_instances_have_their_select_related_objects(task: Task) -> None:
    query = CompiledInstances(Task, lambda key: Task.objects.filter(pk=key), "project", "model", "owner")
    [found] = query.fetch(key=task.pk)
    assert model_to_dict(found) == model_to_dict(task)
    with CaptureQueriesContext(connection) as asked:
        assert found.model is not None
        assert (found.project.name, found.model.name, found.owner.username) == ("p", "m", "reader")
    assert not asked.captured_queries
    found.name = "changed"
    found.save()
    assert Task.objects.get().name == "changed"
    Task.objects.update(model=None)
    again = query.first(key=task.pk)
    assert again is not None
    assert again.model is None
    assert query.first(key="other") is None


def test_a_decimal_is_what_django_gives(task: Task) -> None:
    for budget in (None, Decimal("12.30"), Decimal("999999999999.99"), Decimal(0)):
        Limits.objects.update_or_create(project=task.project, defaults={"budget": budget, "updated_at": now()})
        query = CompiledQuery(lambda key: Limits.objects.filter(pk=key), list_columns(Limits, "budget"))
        [expected], [found] = Limits.objects.values("budget"), query.fetch(key=task.project_id)
        assert str(found) == str(expected)


@isolate_apps("apps.training")
def test_a_column_that_only_its_field_converts_is_refused() -> None:
    class OwnField(models.CharField):  # type: ignore[type-arg]
        pass

    class Odd(models.Model):
        own = OwnField(max_length=1)

        class Meta:
            app_label = "training"

    with pytest.raises(TypeError, match="only Django reads"):
        list_columns(Odd, "own")


def test_each_call_has_its_own_parameters(task: Task, user: User) -> None:
    compiled = CompiledQuery(lambda user: Task.objects.filter(owner=user), ID)
    assert [row["id"] for row in compiled.fetch(user=user.pk)] == [task.pk]
    assert compiled.fetch(user=user.pk + 1) == []
    assert compiled.first(user=user.pk + 1) is None


def test_a_time_is_compared_as_django_compares_it(task: Task) -> None:
    compiled = CompiledQuery(lambda since, until: Task.objects.filter(created_at__gte=since, created_at__lt=until), ID)
    for moment in (task.created_at, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)):
        Task.objects.update(created_at=moment)
        here = moment.astimezone(timezone(timedelta(hours=8)))
        for since in (moment, here):
            assert compiled.fetch(since=since, until=since + timedelta(microseconds=1)) == [{"id": task.pk}]
            assert compiled.fetch(since=since + timedelta(microseconds=1), until=since + timedelta(days=1)) == []
            assert compiled.fetch(since=since - timedelta(days=1), until=since) == []


def test_a_parameter_may_occur_several_times(task: Task) -> None:
    compiled = CompiledQuery(lambda word: Task.objects.filter(Q(pk=word) | Q(name=word)), ID)
    assert len(compiled.fetch(word=task.pk)) == len(compiled.fetch(word="t")) == 1
    assert compiled.fetch(word="other") == []


def test_a_list_of_keys_may_have_any_length(task: Task) -> None:
    compiled = CompiledQuery(lambda **among: Task.objects.filter(pk__in=list(among.values())), ID)
    assert (
        compiled.fetch(**make_key_parameters([task.pk]))
        == compiled.fetch(**make_key_parameters(["x", task.pk, "x"]))
        == [{"id": task.pk}]
    )


def test_key_lists_share_few_compiled_shapes() -> None:
    assert [len(make_key_parameters(map(str, range(count)))) for count in (0, 1, 2, 3, 5, 250)] == [0, 1, 2, 4, 16, 256]
    assert sorted(set(make_key_parameters("abc").values())) == ["a", "b", "c"]


def test_a_shape_is_compiled_once(task: Task) -> None:
    built = []

    def build(order: str, /, key: str) -> object:
        built.append(order)
        return Task.objects.filter(pk=key).order_by(order)

    compiled = CompiledQuery(build, ID)  # type: ignore[arg-type]
    for order in ("id", "-id", "id"):
        assert compiled.fetch(order, key=task.pk)
    assert built == ["id", "-id"]


def test_a_parameter_that_the_query_transforms_is_refused(db: None) -> None:
    """Its SQL would hold what stood in its stead."""
    compiled = CompiledQuery(lambda word: Task.objects.filter(name__icontains=word), ID)
    with pytest.raises(ValueError, match="word"):
        compiled.fetch(word="t")


def test_a_parameter_of_an_unsupported_type_is_refused(db: None) -> None:
    with pytest.raises(TypeError, match="float"):
        CompiledQuery(lambda share: Task.objects.filter(place=share), ID).fetch(share=0.5)  # type: ignore[arg-type]


def test_a_pass_loads_its_task_with_cluster_and_attempts_without_plans(task: Task) -> None:
    begin_attempt(task, 2)
    stranger = Task.objects.get(pk=task.pk)
    stranger.pk = "task-y"
    stranger.save(force_insert=True)
    Attempt.objects.create(task=stranger, number=7, master_port=1, created_at=now())
    rows = Task.objects.select_related("cluster").prefetch_related(Prefetch("attempts", Attempt.objects.defer("plan")))
    Task.objects.update(due_at=now(), claimed_at=None)
    claim = pass_claims.PassClaim(Task.objects.filter(pk=task.pk), timedelta(seconds=30))
    expected, found = rows.get(pk=task.pk), reconciler._load_task(task.pk, claim)
    assert found is not None
    with CaptureQueriesContext(connection) as asked:
        assert model_to_dict(found) == model_to_dict(expected)
        assert found.cluster == expected.cluster
        assert [one.number for one in found.attempts.all()] == [one.number for one in expected.attempts.all()] == [1, 2]
        assert all(one.task is found and one.get_deferred_fields() == {"plan"} for one in found.attempts.all())
    assert len(asked) == 0, "all of it is there"
    newest = found.attempts.order_by("-number").first()
    assert newest is not None
    assert newest.number == 2, "what is asked anew is asked of this task alone"
    assert reconciler._load_task("task-z", claim) is None
