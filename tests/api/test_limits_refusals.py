"""What a project's limits refuse at once: each refusal names the limit, what was asked for, and who could raise it."""

from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Project
from apps.clusters.models import AvailabilityZone, DevEnvironment
from apps.scheduling.models import Limits, Price, Usage, UserLimits
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.api.test_tasks_select import asking

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


def limited(**values: Any) -> None:
    Limits.objects.update_or_create(project_id="project-one", defaults={"updated_at": timezone.now(), **values})


def refused(api: Api, **more: Any) -> dict[str, str]:
    """By field; the preview refuses the same."""
    answer = api.post("/training-tasks", changed(**more))
    problems = api.post("/training-tasks/preview", changed(**more)).data["problems"]
    assert {one["field"]: one["error"] for one in problems} == answer.problems
    return answer.problems


def test_without_limits_members_may_use_all_classes_but_the_highest(colleague: Api, owner: Api, admin: Api) -> None:
    assert refused(colleague, priority="urgent") == {"priority": "LIMIT_PRIORITY"}
    for api, priority in ((colleague, "high"), (owner, "urgent"), (admin, 200)):
        assert api.post("/training-tasks", changed(priority=priority)).status == 201
    limited(priorities=["urgent", "low"])
    assert colleague.post("/training-tasks", changed(priority="urgent")).status == 201
    assert refused(colleague, priority="high") == {"priority": "LIMIT_PRIORITY"}


def test_a_request_beyond_a_limit_reports_every_limit(colleague: Api) -> None:
    zone = AvailabilityZone.objects.create(name="elsewhere")
    limited(most_gpus=3, user_most_gpus=2, gpu_types=["H100"], zones=[zone.pk], longest_run_seconds=3600)
    answer = colleague.post("/training-tasks", changed(maxRunSeconds=7200))
    codes = {one["error"] for one in answer.body["errors"]}
    assert codes == {"LIMIT_GPU_TYPES", "LIMIT_ZONES", "LIMIT_RUN", "LIMIT_GPUS_ASKED", "LIMIT_USER_GPUS_ASKED"}
    english = Api(colleague.user, "en").post("/training-tasks", changed()).body["errors"]
    said = {one["error"]: f"{one['message']} {one['hint']}" for one in english}
    assert "one can use at most 3 at once" in said["LIMIT_GPUS_ASKED"]
    assert "needs 14 GPUs" in said["LIMIT_GPUS_ASKED"]
    assert "maintainer" in said["LIMIT_USER_GPUS_ASKED"]
    assert "sets no maximum run time" in said["LIMIT_RUN_MISSING"]
    assert all("administrator" in text for code, text in said.items() if "USER" not in code)


def test_users_may_have_their_own_limits(colleague: Api, owner: Api, project: Project) -> None:
    limited(user_most_gpus=100)
    UserLimits.objects.create(project=project, user=colleague.user, most_gpus=1)
    assert set(refused(colleague).values()) == {"LIMIT_USER_GPUS_ASKED"}
    assert owner.post("/training-tasks", changed()).status == 201


def test_automatic_choice_respects_limits_and_names_the_one_that_blocks(colleague: Api) -> None:
    DevEnvironment.objects.filter(pk="env-002").update(gpu_type="H100")
    limited(gpu_types=["H100"])
    chosen = colleague.post("/training-tasks/preview", asking({"nodes": 1})).data
    assert (chosen["problems"], chosen["chosen"]["nodeIds"]) == ([], ["env-002"])
    answer = colleague.post("/training-tasks", asking({"nodes": 2}))
    assert answer.problems == {"distributedConfig.select": "LIMIT_GPU_TYPES"}


def test_a_spent_budget_refuses_all_but_preemptible_tasks(colleague: Api, project: Project) -> None:
    moment = timezone.now()
    Price.objects.create(per_gpu_hour=10, since=moment)
    Usage.objects.create(
        task="task-gone", task_name="gone", kind="training", project=project, owner="colleague", environment_name="e",
        zone="z", gpus=8, since=moment, until=moment, training=3600.0, per_gpu_hour=10,
    )  # fmt: skip
    limited(budget=80, at_budget="warn")
    assert colleague.post("/training-tasks", changed()).status == 201
    limited(budget=80, at_budget="refuse")
    assert refused(colleague, preemptible=True) == {"": "BUDGET_SPENT"}
    limited(budget=80, at_budget="preemptible")
    assert refused(colleague) == {"preemptible": "BUDGET_PREEMPTIBLE_ONLY"}
    assert colleague.post("/training-tasks", changed(preemptible=True)).status == 201
    limited(budget=81, at_budget="refuse")
    assert colleague.post("/training-tasks", changed()).status == 201
