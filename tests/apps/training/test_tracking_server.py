"""Where ranks find the platform as their MLflow server."""

import pytest

from apps.accounts.models import Project, User
from apps.clusters.models import Cluster
from apps.training.core.tracking_server import add_tracking_variables, build_tracking_secrets, find_platform_address
from apps.training.models import Task
from apps.training.public import find_token_task
from apps.training.states import TaskKind, TaskState
from fermi.jobs.spec import JobSpec, Node

PUBLIC, OWN = "https://fermi.example.org", "http://127.0.0.1:8000"


@pytest.fixture(autouse=True)
def addresses(settings):
    settings.PUBLIC_URL, settings.OWN_URL, settings.RANKS_URL = PUBLIC, OWN, ""


def make_task(**values) -> Task:
    cluster = Cluster(pk="c", name="c", backend=values.pop("backend", "kubernetes"), connection=values.pop("to", {}))
    return Task(pk="task-1", project=Project(pk="p"), owner=User(username="o"), cluster=cluster, attempt=2,
                state=TaskState.RUNNING, spec=values.pop("spec", {}), **values)  # fmt: skip


def make_job(**values) -> JobSpec:
    node = Node(id="n", name="n", zone="z")
    return JobSpec(task_id="task-1", framework="pytorch-ddp", nodes=(node,), master="n", **values)


def add_variables(task: Task, job: JobSpec) -> JobSpec:
    return add_tracking_variables(task.cluster, task.kind, job)


def test_ranks_get_the_address_as_a_variable_and_the_token_as_a_secret():
    job = add_variables(make_task(), make_job(env={"A": "1"}))
    assert job.env == {"MLFLOW_TRACKING_URI": f"{PUBLIC}/mlflow", "FERMI_MLFLOW_URI": f"{PUBLIC}/mlflow", "A": "1"}
    assert list(job.secret_env) == ["MLFLOW_TRACKING_TOKEN"]
    assert list(build_tracking_secrets(make_task())) == ["MLFLOW_TRACKING_TOKEN"]


@pytest.mark.parametrize(
    "given",
    [
        {"env": {"MLFLOW_TRACKING_URI": "http://mine"}},
        {"secret_env": {"MLFLOW_TRACKING_URI": "uri"}},
        {"env": {"DATABRICKS_HOST": "https://mine"}},
    ],
)
def test_a_task_with_a_server_of_its_own_keeps_it(given):
    job = make_job(**given)
    assert add_variables(make_task(), job) == job
    assert build_tracking_secrets(make_task(spec=given)) == {}


def test_a_drill_or_preflight_test_logs_nothing():
    assert add_variables(make_task(kind=TaskKind.DRILL), make_job()) == make_job()


def test_without_an_address_no_variable_is_set(settings):
    settings.PUBLIC_URL = ""
    assert add_variables(make_task(), make_job()) == make_job()
    assert build_tracking_secrets(make_task()) == {}


def test_the_address_depends_on_where_ranks_are(settings):
    assert find_platform_address(make_task(backend="local").cluster) == OWN
    assert find_platform_address(make_task().cluster) == PUBLIC
    assert find_platform_address(make_task(to={"offline": True}).cluster) == ""
    settings.RANKS_URL = "http://fermi.internal"
    assert find_platform_address(make_task(to={"offline": True}).cluster) == "http://fermi.internal"


@pytest.mark.django_db
@pytest.mark.parametrize("token", ["", "fermi-run-", "fermi-run-task-1.2:bad", "other", "fermi-run-" + "x" * 1000])
def test_what_is_no_token_opens_no_task(token):
    assert find_token_task(token) is None
