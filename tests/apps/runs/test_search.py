"""Searches of runs: every way of finding them gives what the query means, page by page."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from apps.accounts.models import Membership, Project, User
from apps.catalog.models import Dataset, DatasetVersion, Model
from apps.clusters.models import Cluster
from apps.common.errors import ApiError
from apps.runs import search
from apps.runs.models import Run, RunTag
from apps.runs.search import RunIds, Search, search_tasks
from apps.runs.table import parse_sort
from apps.training.models import MetricSummary, Node, Task, TaskParameter
from apps.training.states import TaskKind, TaskState
from fermi.runs.query import parse_query

pytestmark = pytest.mark.database

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
STATES = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.STOPPED)
COUNT = 24
WAYS = ("candidates", "walk", "short walk", "no time")
SORTS = ("-created", "created", "age", "name", "-status", "param.lr", "-param.lr", "metric.val_loss",
         "-metric.acc.best", "-cost", "gpuHours", "-duration", "loss", "-metric.none", "data", "-owner")  # fmt: skip


@pytest.fixture
def tasks(db: None) -> list[Task]:
    """24 tasks of two projects and two people, a minute apart, with every third value left out. The 23rd is a drill."""
    projects = [Project.objects.create(pk=f"p{number}", name=f"project {number}") for number in range(2)]
    people = [User.objects.create_user(name) for name in ("ann", "bo")]
    Membership.objects.create(user=people[0], project=projects[0])
    cluster = Cluster.objects.create(pk="c1", name="main", backend="local")
    dataset = Dataset.objects.create(pk="d1", name="wiki")
    versions = [DatasetVersion.objects.create(pk=f"v{n}", dataset=dataset, name=f"v{n}") for n in (1, 2)]
    model = Model.objects.create(pk="m1", name="gpt")
    return [_make_task(n, projects, people, cluster, versions, model) for n in range(COUNT)]


def _make_task(n: int, projects, people, cluster, versions, model) -> Task:
    created = BEGIN + timedelta(minutes=n // 2 * 2)  # two were created in one moment
    task = Task.objects.create(
        id=f"task-{n:02}", project=projects[n % 2], owner=people[n // 3 % 2], cluster=cluster,
        kind=TaskKind.DRILL if n == 23 else TaskKind.TRAINING, name=f"{'unet' if n % 4 else 'Test'}-{n % 5}",
        framework="jax" if n % 7 == 0 else "pytorch-ddp", dataset_version=versions[n % 2] if n % 3 else None,
        model=model if n % 4 == 0 else None, node_count=1 + n % 3, total_gpus=2, world_size=2, master="env",
        priority=(-1, 0, 50, 100)[n % 4], request={}, spec={"code": {"snapshot": f"abc{n % 2}"}}, summary={},
        state=STATES[n % 3], state_since=created, reason="RANK_KILLED" if n % 3 == 1 else "", attempt=1 + n % 2,
        progress={"step": n, "loss": 10 - n / 10} if n % 5 else {"loss": "?"}, created_at=created,
        started_at=created + timedelta(seconds=5) if n % 6 else None, ended_at=created + timedelta(hours=1 + n % 4),
    )  # fmt: skip
    Node.objects.create(task=task, node_rank=0, name=f"node-{n % 2}", zone="z1" if n % 2 else "z2", processes=2,
                        gpu_type="H200" if n % 4 else "A100")  # fmt: skip
    parameters = {"lr": (0.001, 0.01, 0.1)[n % 3] if n % 5 else None, "opt": ("adam", "sgd")[n % 2], "size": "10k"}
    for name, value in parameters.items():
        if value is not None:
            number = value if isinstance(value, float) else None
            TaskParameter.objects.create(task=task, name=name, value=str(value), number=number, source="request")
    if n % 3:
        MetricSummary.objects.create(task=task, name="val_loss", count=9, last=5 - n / 10, last_step=9, low=4 - n / 10,
                                     low_step=8, high=9, high_step=1)  # fmt: skip
        MetricSummary.objects.create(task=task, name="acc", count=9, last=n % 4, last_step=9, low=0, low_step=8,
                                     high=n, high_step=1)  # fmt: skip
    if n % 4:
        archived = BEGIN if n % 8 == 5 else None
        Run.objects.create(task=task, note="diverged at 50%" if n % 6 == 1 else "", gpu_hours=n / 2,
                           cost=n % 5 or None, archived_at=archived)  # fmt: skip
    for tag in ("baseline", "v2")[: n % 3]:
        RunTag.objects.create(task=task, name=tag)
    return task


@pytest.fixture(params=WAYS)
def way(request, monkeypatch) -> str:
    """How tasks are found: by few candidates, by reading all, by reading five at a time, or three until time is up."""
    if request.param != "candidates":
        monkeypatch.setattr(search, "MAX_CANDIDATES", -1)
    if request.param == "short walk":
        monkeypatch.setattr(search, "MAX_READ", 5)
    if request.param == "no time":
        monkeypatch.setattr(search, "FIRST_CHUNK", 3)
        monkeypatch.setattr(search, "search_tasks", partial(search_tasks, seconds=0))
    return str(request.param)


def find(text: str, *, projects: list[str] | None = None, sort: str = "-created", **options) -> list[str]:
    """Return all tasks that a query finds, page by page."""
    return [key for page in read_pages(text, projects, sort, **options) for key in page.ids]


def read_pages(text: str, projects: list[str] | None, sort: str, size: int = 4, **options) -> Iterator[RunIds]:
    one, cursor = Search(parse_query(text), projects, parse_sort(sort), **options), ""
    for _ in range(100):
        yield (page := search.search_tasks(one, size, cursor))
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
    raise AssertionError("the pages do not end")


EXPECTED = {
    "": lambda n: True,
    "status:failed": lambda n: n % 3 == 1,
    "status!=failed": lambda n: n % 3 != 1,
    "-status:failed,stopped": lambda n: n % 3 == 0,
    "lr>0.001": lambda n: n % 5 and n % 3,
    "lr:1e-2": lambda n: n % 5 and n % 3 == 1,
    "lr:0.01,0.1": lambda n: n % 5 and n % 3,
    "lr>=0.001 lr<0.1": lambda n: n % 5 and n % 3 < 2,
    "lr:*": lambda n: n % 5,
    "-lr:*": lambda n: n % 5 == 0,
    "lr!=0.01": lambda n: n % 5 and n % 3 != 1,
    "opt:adam": lambda n: n % 2 == 0,
    "opt:AD*": lambda n: n % 2 == 0,
    "opt~da": lambda n: n % 2 == 0,
    "opt!=adam": lambda n: n % 2,
    "opt:adam,sgd": lambda n: True,
    "size:10k": lambda n: True,
    "size:10000": lambda n: False,
    "tag:baseline": lambda n: n % 3,
    "tag:v2 status:stopped": lambda n: n % 3 == 2,
    "tag:base*": lambda n: n % 3,
    "-tag:*": lambda n: n % 3 == 0,
    "metric.val_loss<4": lambda n: n % 3 and 5 - n / 10 < 4,
    "metric.val_loss.best>=3": lambda n: n % 3 and 4 - n / 10 >= 3,
    "metric.acc.best>9": lambda n: n % 3 and n > 9,
    "metric.acc.min:0": lambda n: n % 3,
    "metric.acc:1,2": lambda n: n % 3 and n % 4 in (1, 2),
    "metric.id:1,2": lambda n: False,
    "metric.name:*": lambda n: False,
    "cost>=3": lambda n: n % 4 and n % 5 >= 3,
    "gpuHours<3 tag:baseline": lambda n: n % 4 and n < 6 and n % 3,
    "test": lambda n: n % 4 == 0,
    "name:test*": lambda n: n % 4 == 0,
    "name:Test-0": lambda n: n % 20 == 0,
    "name~NET-1": lambda n: n % 4 and n % 5 == 1,
    "-unet": lambda n: n % 4 == 0,
    "id:task-03": lambda n: n == 3,
    "id:task-1*": lambda n: 10 <= n < 20,
    "owner:ann": lambda n: n // 3 % 2 == 0,
    "owner:nobody": lambda n: False,
    "owner:ann or owner:bo": lambda n: True,
    "(owner:ann tag:v2) or id:task-04": lambda n: (n // 3 % 2 == 0 and n % 3 == 2) or n == 4,
    "owner:ann (id:task-00 or id:task-01 or id:task-04)": lambda n: n in (0, 1),
    "-(owner:ann or status:failed)": lambda n: n // 3 % 2 and n % 3 != 1,
    'project:"project 1"': lambda n: n % 2,
    "project:p1": lambda n: n % 2,
    "cluster:main": lambda n: True,
    "data:wiki": lambda n: n % 3,
    'data:"wiki v2"': lambda n: n % 3 and n % 2,
    "model:gpt": lambda n: n % 4 == 0,
    "model:*": lambda n: n % 4 == 0,
    "priority:high,urgent": lambda n: n % 4 > 1,
    "priority!=low": lambda n: n % 4,
    "nodes>2": lambda n: n % 3 == 2,
    "gpus:2": lambda n: True,
    "attempts:2": lambda n: n % 2,
    "reason:RANK_KILLED": lambda n: n % 3 == 1,
    "code:abc1": lambda n: n % 2,
    "environment:node-1": lambda n: n % 2,
    "zone:z1 gpuType:H200": lambda n: n % 2 and n % 4,
    "step>=20": lambda n: n % 5 and n >= 20,
    "loss<9": lambda n: n % 5 and n > 10,
    "note~50%": lambda n: n % 4 and n % 6 == 1,
    "note:*": lambda n: n % 4 and n % 6 == 1,
    "archived:yes": lambda n: n % 8 == 5,
    "-archived:yes": lambda n: n % 8 != 5,
    "archived:no": lambda n: n % 8 != 5,
    "created:2026-11-01": lambda n: True,
    "created<2026-11-01T00:10": lambda n: n < 10,
    "created>2026-11-01T00:10 owner:bo": lambda n: n >= 12 and n // 3 % 2,
    "created<=2026-11-01T00:10": lambda n: n < 12,
    "created!=2026-11-01T00:00": lambda n: n > 1,
    "age>1d": lambda n: True,
    "age<1m": lambda n: False,
    "started:*": lambda n: n % 6,
    "duration>2h": lambda n: n % 6 and n % 4 > 1,
    "-duration>2h": lambda n: not (n % 6 and n % 4 > 1),
    "framework:jax status:succeeded": lambda n: n % 21 == 0,
}  # fmt: skip


def test_queries_find_what_they_mean(tasks, way: str) -> None:
    for text, matches in EXPECTED.items():
        expected = [f"task-{n:02}" for n in range(COUNT - 1) if matches(n)]
        newest_first = sorted(expected, key=lambda key: (-(int(key[5:]) // 2), key))
        assert (text, find(text, archived=None)) == (text, newest_first)


@pytest.mark.parametrize("text", ["", "status:failed,stopped", "tag:baseline lr>0.001", "-unet or owner:bo"])
def test_every_way_sorts_alike_and_pages_do_not_overlap(tasks, monkeypatch, text: str) -> None:
    expected = {sort: find(text, sort=sort, size=100) for sort in SORTS}
    assert all(len(set(keys)) == len(keys) for keys in expected.values())
    assert {sort: find(text, sort=sort, size=3) for sort in SORTS} == expected
    monkeypatch.setattr(search, "MAX_CANDIDATES", -1)
    assert {sort: find(text, sort=sort, size=100) for sort in SORTS} == expected
    assert {sort: find(text, sort=sort, size=3) for sort in SORTS} == expected
    monkeypatch.setattr(search, "MAX_READ", 7)
    for sort, keys in expected.items():
        if parse_sort(sort).is_by_creation or parse_sort(sort).is_by_value:
            assert find(text, sort=sort, size=3) == keys


@pytest.mark.parametrize("sort", ["param.lr", "-param.lr"])
def test_runs_without_a_value_come_last(tasks, way: str, sort: str) -> None:
    values = [lr(key) for key in find("", sort=sort)]
    known = [value for value in values if value is not None]
    assert values == [*sorted(known, reverse=sort.startswith("-")), *([None] * (len(values) - len(known)))]


def lr(key: str) -> float | None:
    n = int(key[5:])
    return (0.001, 0.01, 0.1)[n % 3] if n % 5 else None


@pytest.mark.parametrize("sort", ["-created", "param.lr", "-cost"])
@pytest.mark.parametrize("text", ["", "metric.acc:*", "unet or test"])
def test_only_the_projects_of_the_reader_are_searched(tasks, way: str, text: str, sort: str) -> None:
    mine = find(text, projects=["p0"], sort=sort)
    assert mine == [key for key in find(text, sort=sort) if int(key[5:]) % 2 == 0]
    assert find(text, projects=["p0", "p1"], sort=sort) == find(text, sort=sort)
    assert find(text, projects=[], sort=sort) == []
    assert find(text, projects=["p9"], sort=sort) == []


def test_archived_runs_are_left_out_unless_they_are_wanted(tasks, way: str) -> None:
    archived = {f"task-{n:02}" for n in range(COUNT) if n % 8 == 5}
    assert set(find("")) & archived == set()
    assert set(find("", archived=True)) == archived
    assert set(find("", archived=None)) >= archived


def test_few_candidates_are_counted_exactly(tasks) -> None:
    [page] = read_pages("tag:v2", None, "-created", size=100)
    assert (page.total, page.is_exact, page.is_complete) == (len(page.ids), True, True)


@pytest.mark.parametrize("sort", ["-created", "-metric.acc.best", "name"])
def test_few_archived_runs_are_found_without_reading_all_others(tasks, monkeypatch, sort: str) -> None:
    monkeypatch.setattr(search, "MAX_READ", 1)
    monkeypatch.setattr(search, "MAX_CANDIDATES", 3)
    [page] = read_pages("", None, sort, size=100, archived=True)
    assert {*page.ids} == {"task-05", "task-13", "task-21"}
    assert (page.total, page.is_exact, page.is_complete) == (3, True, True)


def test_a_page_that_reading_did_not_fill_says_so(tasks, monkeypatch) -> None:
    monkeypatch.setattr(search, "MAX_CANDIDATES", -1)
    monkeypatch.setattr(search, "MAX_READ", 5)
    page = next(read_pages("id:task-00 owner:ann", None, "-created"))
    assert (page.ids, page.is_complete, page.read, page.total) == ([], False, 5, None)
    assert page.next_cursor


@pytest.mark.parametrize("sort", ["-created", "param.lr", "-cost", "name"])
def test_nonsense_is_no_cursor(db, sort: str) -> None:
    inside = [
        1, [], None, {}, [sort, [], 1, BEGIN.isoformat(), "x"], [sort, 1, {}, BEGIN.isoformat(), "x"],
        [sort, None, None, "2026-11-01T00:00:00", "x"], [sort, True, 1, BEGIN.isoformat(), "x"],
        [sort, None, None, BEGIN.isoformat(), "\0"], [sort, None, None, "0001-01-01T00:00:00+14:00", "x"],
    ]  # fmt: skip
    cursors = ["x", "é", "\0", *(urlsafe_b64encode(json.dumps(each).encode()).decode() for each in inside)]
    for cursor in cursors:
        with pytest.raises(ApiError) as raised:
            search_tasks(Search(parse_query(""), None, parse_sort(sort)), 5, cursor)
        assert raised.value.code == "CURSOR_INVALID"


def test_a_cursor_of_another_order_is_refused(tasks) -> None:
    page = next(read_pages("", None, "param.lr"))
    assert page.next_cursor
    with pytest.raises(ApiError):
        search_tasks(Search(parse_query(""), None, parse_sort("-param.lr")), 5, page.next_cursor)
