"""Limits and reservations in the operators' console: the administrator's alone, by the rules of the API."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Membership, Project, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.scheduling.models import Limits, Price, Reservation, UserLimits

pytestmark = pytest.mark.database


@pytest.fixture
def environment(db: None) -> DevEnvironment:
    project = Project.objects.create(pk="project-one", name="one")
    zone = AvailabilityZone.objects.create(pk="zone-a", name="A")
    cluster = Cluster.objects.create(pk="local", name="local", backend="local")
    return DevEnvironment.objects.create(
        pk="env-1", name="lab", project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=2
    )


def submit_form(client: Client, page: str, form: dict[str, Any], *key: object) -> str:
    """What the console says to a form; empty once it is saved."""
    way = "change" if key else "add"
    answer = client.post(reverse(f"admin:scheduling_{page}_{way}", args=key), form)
    return answer.content.decode() if answer.status_code == 200 else ""


def test_limits_follow_the_rules_of_the_api(operator: Client, environment: DevEnvironment) -> None:
    form = {"project": "project-one", "weight": "2", "guaranteed_gpus": "9", "most_gpus": "8", "at_budget": "refuse",
            "gpu_types": ["A100"], "zones": ["zone-a"], "priorities": ["low"], "budget": "12.50"}  # fmt: skip
    assert "9 GPUs cannot be guaranteed" in submit_form(operator, "limits", form)
    assert submit_form(operator, "limits", {**form, "guaranteed_gpus": "4"}) == ""
    row = Limits.objects.get()
    assert (row.weight, row.guaranteed_gpus, row.gpu_types, row.zones, row.priorities) == (
        2, 4, ["A100"], ["zone-a"], ["low"],
    )  # fmt: skip
    assert submit_form(operator, "limits", {"weight": "1", "at_budget": "warn"}, row.pk) == ""
    row.refresh_from_db()
    assert (row.most_gpus, row.gpu_types, row.budget) == (None, [], None)
    assert AuditEvent.objects.filter(action="limits.set").count() == 2
    assert operator.get(reverse("admin:scheduling_limits_change", args=[row.pk])).status_code == 200


def test_limits_of_a_member_are_set_and_removed(operator: Client, environment: DevEnvironment) -> None:
    user = User.objects.create_user("ann")
    form = {"project": "project-one", "user": str(user.pk), "most_gpus": "2"}
    assert "not a member" in submit_form(operator, "userlimits", form)
    Membership.objects.create(project_id="project-one", user=user)
    assert submit_form(operator, "userlimits", form) == ""
    row = UserLimits.objects.get()
    assert submit_form(operator, "userlimits", {"most_tasks": "3"}, row.pk) == ""
    row.refresh_from_db()
    assert (row.most_gpus, row.most_tasks) == (None, 3)
    operator.post(reverse("admin:scheduling_userlimits_delete", args=[row.pk]), {"post": "yes"})
    assert not UserLimits.objects.exists()
    assert AuditEvent.objects.filter(action="user-limits.delete").count() == 1


def test_reservations_follow_the_rules_of_the_api(operator: Client, environment: DevEnvironment) -> None:
    def window(begins: int, ends: int) -> dict[str, Any]:
        at = [timezone.now() + timedelta(hours=hours) for hours in (begins, ends)]
        moments = {"begins_at": at[0], "ends_at": at[1]}
        split = {f"{name}_0": f"{one:%Y-%m-%d}" for name, one in moments.items()}
        return {**split, **{f"{name}_1": f"{one:%H:%M:%S}" for name, one in moments.items()}}

    form = {"environments": ["env-1"], "note": "new driver", **window(1, 3)}
    assert "must end after" in submit_form(operator, "reservation", {**form, **window(3, 1)})
    assert submit_form(operator, "reservation", form) == ""
    row = Reservation.objects.get()
    assert [one.pk for one in row.environments.all()] == ["env-1"]
    assert "already reserved" in submit_form(operator, "reservation", {**form, **window(2, 4)})
    assert submit_form(operator, "reservation", {**form, **window(2, 4), "note": "later"}, row.pk) == ""
    row.refresh_from_db()
    assert (row.note, row.environments.count()) == ("later", 1)
    assert operator.get(reverse("admin:scheduling_reservation_change", args=[row.pk])).status_code == 200
    operator.post(reverse("admin:scheduling_reservation_delete", args=[row.pk]), {"post": "yes"})
    assert not Reservation.objects.exists()
    assert AuditEvent.objects.filter(action__startswith="reservation.").count() == 3


def test_a_changed_price_ends_the_old_one_and_keeps_it(operator: Client, environment: DevEnvironment) -> None:
    assert submit_form(operator, "price", {"gpu_type": "A100", "zone": "zone-a", "per_gpu_hour": "-1"}) != ""
    for price in ("10", "12.5", ""):
        assert submit_form(operator, "price", {"gpu_type": "A100", "zone": "zone-a", "per_gpu_hour": price}) == ""
    found = list(Price.objects.order_by("since").values_list("gpu_type", "zone", "per_gpu_hour"))
    assert found == [("A100", "zone-a", 10), ("A100", "zone-a", Decimal("12.5")), ("A100", "zone-a", None)]
    assert AuditEvent.objects.filter(action="prices.set").count() == 3
    page = operator.get(reverse("admin:scheduling_price_change", args=[Price.objects.first().pk]))
    assert "A100" in page.content.decode()


def test_operators_may_view_and_not_change(environment: DevEnvironment) -> None:
    staff = User.objects.create_user("ops", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="scheduling"))
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(staff)
    for page in ("limits", "userlimits", "reservation", "price", "usage"):
        assert client.get(reverse(f"admin:scheduling_{page}_changelist")).status_code == 200
        assert client.get(reverse(f"admin:scheduling_{page}_add")).status_code == 403
