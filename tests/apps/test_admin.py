"""The operators' console: who gets in, what it shows, and that its actions go through services."""

import gettext
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus, Lease
from apps.training.core import outcomes, transitions
from apps.training.models import Attempt, Event, Task
from apps.training.states import TaskState

pytestmark = pytest.mark.database

PAGES = [
    "training_task", "clusters_devenvironment", "clusters_availabilityzone", "clusters_cluster", "catalog_dataset",
    "catalog_datasetversion", "catalog_model", "accounts_user", "accounts_project", "accounts_apitoken",
    "accounts_auditevent", "auth_group", "workers_worker", "workers_group", "workers_jointoken", "scheduling_limits",
    "scheduling_userlimits", "scheduling_reservation", "files_librarycache",
]  # fmt: skip

PLAN = {
    "artifacts": [{"kind": "file", "name": "launch.sh", "content": "#!/bin/sh\n<script>alert(1)</script>"}],
}


@pytest.fixture
def environment(task: Task) -> DevEnvironment:
    """Held by `task`, which runs."""
    zone = AvailabilityZone.objects.create(pk="zone-a", name="A")
    made = DevEnvironment.objects.create(
        pk="env-1", name="lab", project=task.project, cluster=task.cluster, zone=zone, gpu_type="A100", gpu_count=2
    )
    Lease.objects.create(environment=made, holder=task.pk)
    return made


def page(client: Client, name: str, *args: str, **query: str) -> str:
    response = client.get(reverse(f"admin:{name}", args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def act(client: Client, model: str, action: str, *keys: str) -> str:
    """What the console says afterwards."""
    address = reverse(f"admin:{model}_changelist")
    response = client.post(address, {"action": action, "_selected_action": keys}, follow=True)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("name", ["index", *(f"{name}_changelist" for name in PAGES)])
def test_only_staff_has_access(name: str, user: User) -> None:
    address = reverse(f"admin:{name}")
    for client in (Client(), Client()):
        answer = client.get(address)
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/admin/login/")
        client.force_login(user)
        assert client.get(address).status_code == 302


def test_users_without_operator_rights_get_an_explanation_and_anonymous_the_form(user: User) -> None:
    client = Client()
    assert client.get("/admin/", follow=True).redirect_chain[-1][0] == "/sign-in?next=/admin/"
    client.force_login(user)
    assert client.get("/admin/", follow=True).redirect_chain[-1][0] == "/operators-only"
    User.objects.filter(pk=user.pk).update(is_staff=True)
    assert client.get("/admin/login/")["Location"] == "/admin/"


@pytest.mark.parametrize("model", PAGES)
def test_staff_sees_only_permitted_models(model: str, user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_staff=True)
    client = Client()
    client.force_login(user)
    assert client.get(reverse(f"admin:{model}_changelist")).status_code == 403
    assert "Tasks by status" not in page(client, "index")


@pytest.mark.parametrize("model", PAGES)
def test_every_list_opens_and_searches_with_a_constant_number_of_queries(
    model: str, operator: Client, environment: DevEnvironment, django_assert_max_num_queries: Any
) -> None:
    assert page(operator, f"{model}_changelist")
    with django_assert_max_num_queries(16):
        page(operator, f"{model}_changelist", q="a")


def test_the_overview_shows_waiting_tasks_reasons_and_problems(
    operator: Client, task: Task, environment: DevEnvironment, django_assert_max_num_queries: Any
) -> None:
    killed = outcomes.build_outcome_columns("RANK_KILLED", {"rank": 1, "node": "gn5", "signal": "SIGSEGV"})
    Attempt.objects.filter(task=task).update(**killed, ended_at=task.created_at)
    waiting = Task.objects.get(pk=task.pk)
    waiting.pk, waiting.name = "task-y", "patient"
    waiting.state, waiting.attempt = TaskState.QUEUED, 0
    waiting.reason, waiting.reason_params = "WAITING_FOR_ENVIRONMENTS", {"held": "lab (task-x)"}
    waiting.save(force_insert=True)
    DevEnvironment.objects.filter(pk=environment.pk).update(status=EnvironmentStatus.UNHEALTHY)
    page(operator, "index")
    with django_assert_max_num_queries(14):
        shown = page(operator, "index")
    for text in ("Tasks by status", "patient", "lab (task-x)", "unhealthy", "killed by SIGSEGV"):
        assert text in shown


@pytest.mark.parametrize(
    ("zone", "shown", "said"),
    [
        ("Asia/Shanghai", "02-01 01:30:00", "Times: Asia/Shanghai (UTC+08:00)"),
        ("America/St_Johns", "01-31 14:00:00", "Times: America/St_Johns (UTC-0"),
        ("no/such zone", "01-31 17:30:00", "Times: UTC (UTC+00:00)"),
        ("../../etc/passwd", "01-31 17:30:00", "Times: UTC (UTC+00:00)"),
    ],
)
def test_times_are_in_the_browsers_zone(operator: Client, task: Task, zone: str, shown: str, said: str) -> None:
    Attempt.objects.filter(task=task).update(plan=PLAN, created_at=datetime(2026, 1, 31, 17, 30, tzinfo=UTC))
    operator.cookies["fermi_zone"] = zone
    told = page(operator, "training_task_change", task.pk)
    assert shown in told
    assert said in told
    assert "+08:00" not in operator.get("/api/v1/training-tasks").content.decode()


@pytest.mark.parametrize("outcome", ["GAVE_WAY", "PAUSED", "RESIZING", "COMPLETED_AND_KILLED", "STOPPED_AND_KILLED"])
def test_requested_ends_are_not_shown_as_failures(operator: Client, task: Task, outcome: str) -> None:
    Attempt.objects.filter(task=task).update(outcome=outcome)
    assert outcome not in page(operator, "index")


def test_the_overview_counts_and_links_left_out_rows(operator: Client, environment: DevEnvironment) -> None:
    def another(number: int, **facts: Any) -> DevEnvironment:
        return DevEnvironment(
            pk=f"env-x{number}", name=f"x{number:02}", project=environment.project, cluster=environment.cluster,
            zone=environment.zone, **facts,
        )  # fmt: skip

    DevEnvironment.objects.bulk_create(another(number, status=EnvironmentStatus.UNHEALTHY) for number in range(67))
    DevEnvironment.objects.bulk_create([another(99, cordoned=True)])
    shown = page(operator, "index")
    assert "20 of 68 shown" in shown
    listed = reverse("admin:clusters_devenvironment_changelist")
    assert re.search(rf'href="{re.escape(listed)}\?status__exact=unhealthy">unhealthy</a> 67\b', shown)
    assert re.search(rf'href="{re.escape(listed)}\?cordoned__exact=1">cordoned</a> 1\b', shown)
    DevEnvironment.objects.filter(status=EnvironmentStatus.UNHEALTHY).update(status=EnvironmentStatus.RUNNING)
    shown = page(operator, "index")
    assert "x99" in shown  # a drained node, of which nothing is held any more
    assert "of 1 shown" not in shown


def test_the_admin_is_in_the_readers_language(operator: Client, task: Task) -> None:
    assert "Training tasks" in page(operator, "training_task_changelist")
    operator.defaults["HTTP_ACCEPT_LANGUAGE"] = "zh-CN"
    chinese = page(operator, "training_task_changelist")
    assert "训练任务" in chinese
    assert "训练中" in chinese


def test_compiled_translations_match_their_source(root: Path) -> None:
    folder = root / "platform/server/locale/zh_Hans/LC_MESSAGES"
    with (folder / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    pairs = re.findall(r'^msgid "(.+)"\nmsgstr "(.+)"$', (folder / "django.po").read_text(), re.M)
    assert len(pairs) > 30
    assert {source: compiled.gettext(source) for source, _ in pairs} == dict(pairs)


def test_a_tasks_page_shows_plan_and_events_read_only(operator: Client, task: Task) -> None:
    Attempt.objects.filter(task=task).update(plan=PLAN)
    transitions.record_event(task.pk, 1, "state", "STOP_REQUESTED", {"by": "ada"})
    shown = page(operator, "training_task_change", task.pk)
    assert "launch.sh" in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "ada" in shown
    assert 'name="state"' not in shown
    posted = operator.post(reverse("admin:training_task_change", args=[task.pk]), {"state": "succeeded"})
    assert posted.status_code == 403
    task.refresh_from_db()
    assert task.state == TaskState.RUNNING


def test_the_stop_action_calls_the_service_once(operator: Client, task: Task) -> None:
    for _ in range(2):
        assert "stopping: 1" in act(operator, "training_task", "stop", task.pk)
    task.refresh_from_db()
    assert task.stop_requested_at
    assert Event.objects.filter(task=task, code="STOP_REQUESTED").count() == 1
    assert AuditEvent.objects.filter(action="task.stop", actor__username="root").count() == 1


def test_an_impossible_retry_gives_the_reason(operator: Client, task: Task) -> None:
    assert "retry is not possible yet" in act(operator, "training_task", "retry", task.pk)
    assert Task.objects.count() == 1


def test_an_action_needs_the_change_permission(user: User, task: Task) -> None:
    User.objects.filter(pk=user.pk).update(is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_task"))
    client = Client()
    client.force_login(user)
    page(client, "training_task_changelist")
    act(client, "training_task", "stop", task.pk)
    task.refresh_from_db()
    assert task.stop_requested_at is None


def test_an_operator_without_a_role_in_the_project_is_refused_by_the_service(db: None, task: Task) -> None:
    other = User.objects.create_user("staff", is_staff=True)
    other.user_permissions.add(*Permission.objects.filter(codename__in=["view_task", "change_task"]))
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(other)
    assert "stopping: 1" not in act(client, "training_task", "stop", task.pk)
    task.refresh_from_db()
    assert task.stop_requested_at is None
    Membership.objects.create(project=task.project, user=other, role=Role.MEMBER)
    assert "stopping: 1" in act(client, "training_task", "stop", task.pk)


def test_an_environment_is_cordoned_and_uncordoned(operator: Client, environment: DevEnvironment) -> None:
    assert "cordoned: 1" in act(operator, "clusters_devenvironment", "cordon", environment.pk)
    environment.refresh_from_db()
    assert environment.cordoned
    assert "uncordoned: 1" in act(operator, "clusters_devenvironment", "uncordon", environment.pk)
    environment.refresh_from_db()
    assert not environment.cordoned
    assert AuditEvent.objects.filter(action="environment.change", actor__username="root").count() == 2


@pytest.mark.parametrize(
    ("model", "key"), [("clusters_devenvironment", "env-1"), ("clusters_availabilityzone", "zone-a")]
)
def test_draining_cordons_and_stops_running_tasks(
    model: str, key: str, operator: Client, environment: DevEnvironment, task: Task
) -> None:
    assert "drained: 1" in act(operator, model, "drain", key)
    environment.refresh_from_db()
    task.refresh_from_db()
    assert environment.cordoned
    assert task.stop_requested_at


def test_a_zone_is_cordoned_as_a_whole(operator: Client, environment: DevEnvironment) -> None:
    act(operator, "clusters_availabilityzone", "cordon", "zone-a")
    environment.refresh_from_db()
    assert environment.cordoned
    act(operator, "clusters_availabilityzone", "uncordon", "zone-a")
    environment.refresh_from_db()
    assert not environment.cordoned


def test_a_token_is_revoked_and_never_shown(operator: Client, user: User) -> None:
    made, token = ApiToken.objects.create(user=user, expiry=None, name="ci")
    shown = page(operator, "accounts_apitoken_changelist") + page(operator, "accounts_apitoken_change", made.pk)
    assert token not in shown
    assert "revoked: 1" in act(operator, "accounts_apitoken", "revoke", made.pk)
    assert not ApiToken.objects.filter(pk=made.pk).exists()
    assert AuditEvent.objects.get(action="token.revoke").data == {"user": "reader"}


def test_staff_cannot_raise_their_own_permissions(user: User, administrator: User) -> None:
    User.objects.filter(pk=user.pk).update(is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_user", "change_user"]))
    client = Client()
    client.force_login(user)
    form = page(client, "accounts_user_change", str(user.pk))
    assert 'name="is_superuser"' not in form
    password = reverse("admin:auth_user_password_change", args=[administrator.pk])
    assert client.get(password).status_code == 403
    posted = client.post(reverse("admin:accounts_user_change", args=[administrator.pk]), {"username": "mine"})
    assert posted.status_code == 403


def test_a_cluster_is_added_with_a_backend_that_exists(operator: Client) -> None:
    address = reverse("admin:clusters_cluster_add")
    operator.post(address, {"name": "x", "backend": "nonsense", "connection": "{}"})
    assert not Cluster.objects.exists()
    operator.post(address, {"name": "x", "backend": "local", "connection": "{}"})
    assert Cluster.objects.get().backend == "local"
    assert AuditEvent.objects.filter(action="cluster.add").exists()


def test_a_cluster_with_an_old_invalid_connection_can_be_renamed(operator: Client) -> None:
    old = Cluster.objects.create(name="old", backend="kubernetes", connection={"queue": "gpus"})
    address = reverse("admin:clusters_cluster_change", args=[old.pk])
    for connection, name in (('{"queue": "lab"}', "no"), ('{"queue": "gpus"}', "renamed")):
        operator.post(address, {"name": name, "backend": "kubernetes", "connection": connection})
    old.refresh_from_db()
    assert (old.name, old.connection) == ("renamed", {"queue": "gpus"})


def test_pages_have_a_csp_without_inline_scripts(operator: Client) -> None:
    policy = operator.get(reverse("admin:index"))["Content-Security-Policy"]
    assert "script-src 'self' 'unsafe-eval';" in policy
    assert "unsafe-eval" not in Client().get("/sign-in")["Content-Security-Policy"]


def test_a_second_factors_secret_is_hidden_and_can_be_removed(operator: Client, user: User) -> None:
    mine = Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": "sesame"})
    shown = page(operator, "mfa_authenticator_change", str(mine.pk))
    assert user.username in shown
    assert "sesame" not in shown
    assert operator.get(reverse("admin:mfa_authenticator_add")).status_code == 403
    operator.post(reverse("admin:mfa_authenticator_delete", args=[mine.pk]), {"post": "yes"})
    assert not Authenticator.objects.exists()


def test_projects_are_shown(operator: Client, task: Task) -> None:
    assert Project.objects.get().name in page(operator, "accounts_project_changelist")


def test_an_account_is_created_and_deactivated(operator: Client) -> None:
    page(operator, "accounts_user_add")
    password = "correct horse battery"
    operator.post(
        reverse("admin:accounts_user_add"),
        {"username": "new", "usable_password": "true", "password1": password, "password2": password},
    )
    made = User.objects.get(username="new")
    assert made.check_password(password)
    assert not made.is_staff
    form = page(operator, "accounts_user_change", str(made.pk))
    assert 'name="is_active"' in form
    fields = {"username": "new", "date_joined_0": "2026-11-21", "date_joined_1": "09:00:00"}
    operator.post(reverse("admin:accounts_user_change", args=[made.pk]), fields)
    made.refresh_from_db()
    assert not made.is_active
