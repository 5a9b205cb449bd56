"""What a project and its members may hold: the first limit that a start would break is named."""

from typing import Any

import pytest

from fermi import messages
from fermi.jobs.spec import Problem
from fermi.scheduler.limits import GpuUsage, find_broken_limit
from fermi.scheduler.snapshot import Project, Quota
from tests.unit.scheduler.snapshots import held, place, waiting

PLACES = {name: place(name) for name in "abc"}
HELD = [held("h", "a"), held("i", "b", user="bob")]
SPENT = Problem("", "BUDGET_SPENT", {"project": "lab"})


@pytest.mark.parametrize(
    ("known", "code"),
    [
        ({"most_gpus": 12, "most_tasks": 3, "gpu_hours": 10.0, "spent_hours": 9.9}, None),
        ({"most_gpus": 11}, "LIMIT_GPUS"),
        ({"most_tasks": 2}, "LIMIT_TASKS"),
        ({"gpu_hours": 10.0, "spent_hours": 10.0}, "LIMIT_GPU_HOURS"),
        ({"each_user": Quota(8, 2, 1.0), "spent_by_user": {"ann": 0.5}}, None),
        ({"each_user": Quota(most_gpus=7)}, "LIMIT_USER_GPUS"),
        ({"each_user": Quota(most_tasks=1)}, "LIMIT_USER_TASKS"),
        ({"each_user": Quota(gpu_hours=1.0), "spent_by_user": {"ann": 1.0}}, "LIMIT_USER_GPU_HOURS"),
        ({"each_user": Quota(most_gpus=1), "users": {"ann": Quota(most_gpus=8)}}, None),
        ({"stopped": SPENT}, "BUDGET_SPENT"),
        ({"stopped": SPENT, "only_preemptible": True}, "BUDGET_SPENT"),
    ],
)
def test_the_limit_that_a_start_would_exceed_is_named(known: dict[str, Any], code: str | None) -> None:
    found = find_broken_limit(waiting("t", "c"), Project("lab", **known), GpuUsage(HELD, PLACES))
    assert (found.code if found else None) == code
    if found and code != "BUDGET_SPENT":
        for lang in messages.LANGUAGES:
            assert messages.MISSING_VALUE not in messages.render_text(found.code, lang, **found.params)[0]


def test_preemptible_tasks_start_on_a_spent_budget_where_allowed() -> None:
    task = waiting("t", "c", preemptible=True)
    assert find_broken_limit(task, Project("lab", stopped=SPENT, only_preemptible=True), GpuUsage(HELD, PLACES)) is None
    assert find_broken_limit(task, Project("lab", stopped=SPENT), GpuUsage(HELD, PLACES)) == SPENT
