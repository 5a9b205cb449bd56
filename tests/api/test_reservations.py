"""Environments set aside: for a project, or for nobody while they are maintained."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project
from apps.clusters.models import DevEnvironment
from apps.scheduling.models import Reservation
from apps.training.queue import load
from tests.api.conftest import Api

PATH = "/reservations"

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments")]


def window(begins: float = 1, ends: float = 2, **more: Any) -> dict[str, Any]:
    """Hours from now."""
    at = [(timezone.now() + timedelta(hours=hours)).isoformat() for hours in (begins, ends)]
    return {"environmentIds": ["env-001"], "beginsAt": at[0], "endsAt": at[1], **more}


def test_only_maintainers_reserve_environments_of_their_project(
    owner: Api, colleague: Api, stranger: Api, anonymous: Api, admin: Api
) -> None:
    made = owner.post(PATH, window(projectId="project-one", note="the big run"))
    assert made.status == 201
    shown = made.data
    assert (shown["kind"], shown["projectName"], shown["createdBy"]) == ("reserved", "one", "owner")
    assert [one["id"] for one in shown["environments"]] == ["env-001"]
    later = window(5, 6)
    assert colleague.post(PATH, later).status == 403
    assert stranger.post(PATH, later).problems == {"environmentIds.0": "ENVIRONMENT_UNKNOWN"}
    assert anonymous.post(PATH, later).status == 401
    assert admin.post(PATH, later).data["kind"] == "maintenance"
    one = f"{PATH}/{shown['id']}"
    assert [api.get(one).status for api in (colleague, stranger, anonymous)] == [200, 404, 401]
    assert [api.get(one).data["mayChange"] for api in (owner, colleague, admin)] == [True, False, True]
    assert [api.delete(one).status for api in (colleague, stranger, owner)] == [403, 404, 200]
    assert [one.action for one in AuditEvent.objects.filter(action__startswith="reservation").order_by("pk")] == [
        "reservation.create", "reservation.create", "reservation.delete",
    ]  # fmt: skip


def test_all_problems_of_a_reservation_are_reported(owner: Api, admin: Api, other_project: Project) -> None:
    assert owner.post(PATH, {}).problems == dict.fromkeys(("environmentIds", "beginsAt", "endsAt"), "FIELD_REQUIRED")
    assert owner.post(PATH, window(2, 1, environmentIds=[])).problems == {
        "environmentIds": "ENVIRONMENT_REQUIRED", "endsAt": "RESERVATION_ENDS_FIRST",
    }  # fmt: skip
    unknown = window(-2, -1, environmentIds=["env-000", "env-002", "env-002"], projectId="project-none")
    assert owner.post(PATH, unknown).problems == {
        "environmentIds.0": "ENVIRONMENT_UNKNOWN", "environmentIds.2": "ENVIRONMENT_DUPLICATE",
        "projectId": "PROJECT_UNKNOWN", "endsAt": "RESERVATION_PAST",
    }  # fmt: skip
    assert owner.post(PATH, window(projectId=other_project.pk)).problems == {"projectId": "PROJECT_UNKNOWN"}
    foreign = admin.post(PATH, window(projectId=other_project.pk))
    assert foreign.problems == {"environmentIds.0": "RESERVATION_FOREIGN"}
    assert owner.post(PATH, window(beginsAt="soon")).problems == {"beginsAt": "FIELD_INVALID"}
    assert not Reservation.objects.exists()


def test_reservations_of_an_environment_do_not_overlap(owner: Api) -> None:
    first = owner.post(PATH, window(1, 3, environmentIds=["env-001", "env-002"], note="update")).data
    refused = owner.post(PATH, window(2, 4, environmentIds=["env-003", "env-002"]))
    assert refused.problems == {"environmentIds.1": "RESERVATION_OVERLAPS"}
    assert "update" in refused.body["errors"][0]["message"]
    second = owner.post(PATH, {**window(), "beginsAt": first["endsAt"], "endsAt": window(3, 9)["endsAt"]})
    assert second.status == 201, "one begins when the other ends"
    moved = owner.patch(f"{PATH}/{second.data['id']}", {"beginsAt": first["beginsAt"]})
    assert moved.problems == {"environmentIds.0": "RESERVATION_OVERLAPS"}
    moved = owner.patch(f"{PATH}/{second.data['id']}", {"beginsAt": first["beginsAt"], "environmentIds": ["env-003"]})
    assert [one["id"] for one in moved.data["environments"]] == ["env-003"]
    assert owner.patch(f"{PATH}/{first['id']}", {"note": "later"}).data["note"] == "later"


def test_readers_of_a_shared_environment_see_only_the_times_of_its_reservations(
    admin: Api, owner: Api, stranger: Api, other_project: Project
) -> None:
    DevEnvironment.objects.filter(pk="env-001").update(shared=True)
    body = window(projectId="project-one", note="secret", environmentIds=["env-001", "env-002"])
    made = owner.post(PATH, body).data["id"]
    seen = stranger.get(f"{PATH}/{made}").data
    assert (seen["kind"], seen["projectId"], seen["note"], seen["mayChange"]) == ("reserved", None, "", False)
    assert [one["id"] for one in seen["environments"]] == ["env-001"]
    assert stranger.post(PATH, window(5, 6)).status == 403
    theirs = admin.post(PATH, window(5, 6, projectId=other_project.pk)).data["id"]
    assert stranger.get(f"{PATH}/{theirs}").data["projectName"] == "two"
    assert owner.patch(f"{PATH}/{theirs}", {"note": "moved"}).data["mayChange"], "a maintainer of the environment may"


def test_reservations_are_listed_by_time_and_project(owner: Api, admin: Api, viewer: Api) -> None:
    soon = owner.post(PATH, window(1, 2)).data["id"]
    later = owner.post(PATH, window(50, 52, projectId="project-one")).data["id"]
    over = Reservation.objects.create(
        begins_at=datetime(2020, 1, 1, tzinfo=UTC), ends_at=datetime(2020, 1, 2, tzinfo=UTC), created_at=timezone.now()
    )
    over.environments.set(DevEnvironment.objects.filter(pk="env-001"))
    assert viewer.get(PATH).ids == [soon, later]
    assert viewer.get(PATH, to=window(0, 10)["endsAt"]).ids == [soon]
    assert viewer.get(PATH, **{"from": "2019-01-01T00:00:00Z"}).ids == [over.pk, soon, later]
    assert viewer.get(PATH, project="project-one").ids == [soon, later]
    assert viewer.get(PATH, project="project-two").ids == []
    assert viewer.get(PATH, **{"from": "yesterday"}).problems == {"from": "FIELD_INVALID"}
    windows = {one.id: one for one in load.load_snapshot(timezone.now()).reservations}
    assert {soon, later} == windows.keys()
    assert (windows[later].project, windows[soon].project) == ("project-one", None)
    assert windows[soon].places == {"env-001"}
