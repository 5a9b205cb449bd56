"""Nobody fills the database: how much of each kind an owner may make."""

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from apps.common.row_bounds import MAX_ROWS
from apps.notices.models import Channel, Delivery
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.database

ONE = "project-one"
SOON = {"beginsAt": (timezone.now() + timedelta(hours=1)).isoformat(),
        "endsAt": (timezone.now() + timedelta(hours=2)).isoformat()}  # fmt: skip
HOOK = {"scope": "me", "name": "hook", "kind": "webhook", "address": "https://hooks.example.org/x"}
NEW = {"name": "mine", "projectId": ONE, "clusterId": "local", "zone": "z", "gpuCount": 1}
MADE = {
    "code-fetches": ("POST", "/code/fetches", {"projectId": ONE, "git": {"url": "https://git.example.org/a"}}),
    "datasets": ("POST", "/datasets", {"name": "d", "projectId": ONE, "path": "{text}"}),
    "environment-templates": (
        "POST",
        "/environment-templates",
        {"name": "t", "projectId": ONE, "kind": "custom", "startScript": "sleep 9"},
    ),
    "environments": ("POST", "/dev-environments", NEW),
    "installations": ("POST", "/dev-environments/packages/level", {"ids": ["env-001"], "packages": ["einops"]}),
    "files": ("POST", f"/projects/{ONE}/files/folders", {"path": "a"}),
    "join-tokens": ("POST", "/workers/join-tokens", {"name": "lab"}),
    "models": ("POST", "/models", {"name": "m", "projectId": ONE}),
    "notice-channels": ("POST", "/notice-channels", HOOK),
    "notice-rules": ("POST", "/notice-rules", {"scope": "me", "name": "r", "channels": []}),
    "reservations": ("POST", "/reservations", {"environmentIds": ["env-001"], "projectId": ONE, **SOON}),
    "run-views": ("POST", "/run-views", {"name": "v"}),
    "saved-templates": (
        "POST",
        "/saved-templates",
        {"name": "t", "projectId": ONE, "request": changed()},
    ),
    "schedules": (
        "POST",
        "/schedules",
        {"name": "s", "projectId": ONE, "request": changed(), "cron": "0 0 * * *"},
    ),
    "saved-views": ("POST", "/saved-views", {"section": "training", "name": "v", "query": ""}),
    "secrets": ("PUT", f"/projects/{ONE}/secrets/s", {"value": "x"}),
    "service-accounts": ("POST", f"/projects/{ONE}/service-accounts", {"name": "ci"}),
    "tasks": ("POST", "/training-tasks", changed()),
    "worker-groups": ("POST", "/worker-groups", {"name": "g"}),
}
"""Requests that make one. Of the rest: `dataset-versions`, `doors`, `exchange-rules`, `proposals`, `workers`,
`notice-tests`, `oauth-grants` and those of MLflow have tests below or beside what makes them."""

BOUNDED = {
    "accounts.ApiToken", "accounts.SavedView", "accounts.Secret", "agents.Proposal", "catalog.Dataset",
    "catalog.DatasetVersion", "catalog.Model", "clusters.DevEnvironment", "code.Fetch", "code.Snapshot",
    "doors.Entry", "environments.Hosted", "environments.Installation", "environments.Look", "environments.Template",
    "exchange.Rule", "files.File", "files.Upload", "mlflow.Experiment", "mlflow.LoggedModel", "mlflow.ModelVersion",
    "mlflow.RegisteredModel", "mlflow.TrackedRun", "notices.Channel", "notices.Rule", "oauth.Grant", "runs.RunTag",
    "runs.RunView", "scheduling.Reservation", "sweeps.Sweep", "templates.SavedTemplate", "templates.Schedule",
    "training.Task", "workers.Group", "workers.JoinToken", "workers.Worker",
}  # fmt: skip
ONE_FOR_EACH_OTHER_ROW = {
    "accounts.Membership", "agents.Purse", "clusters.Lease", "clusters.PortLease", "common.Written",
    "directory.KeptRole", "directory.RuleAdministrator", "environments.MemoryLook", "environments.Standby",
    "exchange.UsedToken", "files.LibraryCache", "files.Outputs", "mlflow.MetricValue", "mlflow.RunEntry",
    "mlflow.RunMetric", "oauth.GrantToken", "runs.Run", "scheduling.Limits", "scheduling.Share",
    "scheduling.UserLimits", "templates.ScheduleRun", "tensorboard.TensorBoard", "training.DiagnosisRules",
    "training.Drill", "training.MetricBlockState", "training.Node", "training.Preflight", "training.TaskPredecessor",
    "training.TraceExport", "workers.Report",
}  # fmt: skip
BY_ADMINISTRATORS_OR_THE_PLATFORM = {
    "accounts.Project", "accounts.SignInLink", "accounts.User", "clusters.AvailabilityZone", "clusters.Cluster",
    "code.Blob", "common.ClockJump", "directory.GroupProject", "directory.RoleRule", "environments.Event",
    "environments.Gpu", "environments.Run", "identity.IdentityProvider", "notices.Delivery", "notices.Incident",
    "notices.Item", "overview.Hour", "runs.Position", "scheduling.Price", "scheduling.Usage", "sweeps.Trial",
    "telemetry.Block", "training.Attempt", "training.AttemptFacts", "training.Checkpoint", "training.Event",
    "training.FactSet", "training.Finding", "training.LogCursor", "training.LogPattern", "training.MetricBlock",
    "training.MetricPoint", "training.MetricSummary", "training.Queue", "training.TaskMedia",
    "training.TaskParameter", "training.TrackerRun", "training.Watch", "workers.Channel", "workers.HostRun",
    "workers.Launch", "workers.Listening", "workers.Order", "workers.Revision",
}  # fmt: skip
KEPT_FOR_EVER = {"accounts.AuditEvent"}
"""By intent: what somebody has done stays."""


@pytest.fixture(autouse=True)
def allowed(settings: Any, tmp_path: Any) -> None:
    settings.NOTICE_HOSTS = ["hooks.example.org"]
    settings.DATA_ROOTS = [str(tmp_path)]
    (tmp_path / "text.txt").write_text("one two three " * 100, "utf-8")


@pytest.mark.usefixtures("environments", "dataset", "model")
@pytest.mark.parametrize("kind", MADE)
def test_rows_of_each_kind_per_owner_are_limited(
    owner: Api, kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, path, body = MADE[kind]
    if body.get("path") == "{text}":
        body = {**body, "path": str(tmp_path / "text.txt")}
    with monkeypatch.context() as patch:
        patch.setitem(MAX_ROWS, kind, 0)
        answer = owner._send(method, path, body)
        assert (answer.status, answer.error) == (409, "ROWS_FULL")
        assert kind in answer.body["message"]
    assert owner._send(method, path, body).status in (200, 201, 202)
    monkeypatch.setitem(MAX_ROWS, kind, 1)
    changes = {"name": "another"} if "name" in body else {"reservations": {"environmentIds": ["env-002"]},
                                                         "files": {"path": "b"}}.get(kind, {})  # fmt: skip
    more = {**body, **changes}
    assert owner._send(method, f"{path}2" if kind == "secrets" else path, more).error == "ROWS_FULL"


def test_the_oldest_test_messages_of_a_channel_are_deleted(
    owner: Api, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    key = owner.post("/notice-channels", HOOK).data["id"]
    monkeypatch.setitem(MAX_ROWS, "notice-tests", 2)
    Channel.objects.update(address="unreadable")
    made = [owner.post(f"/notice-channels/{key}/test").data["id"] for _ in range(3)]
    assert set(Delivery.objects.values_list("pk", flat=True)) == set(made[1:])


def test_every_table_has_a_documented_bound() -> None:
    ours = {one._meta.label for one in apps.get_models() if one.__module__.startswith("apps.")}
    known = BOUNDED | ONE_FOR_EACH_OTHER_ROW | BY_ADMINISTRATORS_OR_THE_PLATFORM | KEPT_FOR_EVER
    assert ours == known, "say what bounds the rows of a new table, and add it to one of the lists"
