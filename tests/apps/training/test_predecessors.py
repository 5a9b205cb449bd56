"""An evaluation that starts after the training it measures: real processes on this machine."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.training.models import Task
from apps.training.services.create import submit_request
from apps.training.states import FINAL_STATES, TaskState
from tests.apps.task_passes import advance_tasks
from tests.polling import until

pytestmark = pytest.mark.django_db(transaction=True)

TRAIN = """
import json, os
path = os.path.join(os.environ["FERMI_CHECKPOINT_DIR"], "step-1.json")
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path, "w") as file:
    json.dump({"weight": 7}, file)
with open(os.path.join(os.environ["FERMI_OUTPUT_DIR"], "report.txt"), "w") as file:
    file.write("done")
print(json.dumps({"event": "checkpoint", "path": path, "step": 1}), flush=True)
"""
EVALUATE = """
import json, os, sys
with open(sys.argv[1]) as file:
    weight = json.load(file)["weight"]
with open(os.path.join(os.environ["FERMI_AFTER_OUTPUTS"], "report.txt")) as file:
    report = file.read()
assert sys.argv[1] == os.environ["FERMI_AFTER_CHECKPOINT"]
print(json.dumps({"step": 1, "weight": weight, "report": len(report)}), flush=True)
"""


@pytest.fixture
def project(user: User, settings: Any, tmp_path: Path) -> Project:
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").write_text(TRAIN, "utf-8")
    (tmp_path / "workspace" / "evaluate.py").write_text(EVALUATE, "utf-8")
    cluster, zone = Cluster.objects.create(name="c", backend="local"), AvailabilityZone.objects.create(name="z")
    project = Project.objects.create(name="p")
    Membership.objects.create(project=project, user=user, role=Role.MAINTAINER)
    DevEnvironment.objects.create(
        id="env-a", name="gn-a", project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=1,
        emulated=True, status=EnvironmentStatus.RUNNING,
    )  # fmt: skip
    return project


def submit(user: User, script: str, *args: str, **more: Any) -> Task:
    return submit_request(
        user,
        {
            "taskName": script, "environmentIds": ["env-a"], "datasetId": None, "datasetVersionId": None,
            "entrypoint": {"script": f"{django_settings.DATA_DIR}/workspace/{script}", "args": [*args]}, **more,
        },
    )  # fmt: skip


def test_an_evaluation_reads_the_checkpoint_and_the_outputs_of_its_training(user: User, project: Project) -> None:
    train = submit(user, "train.py")
    evaluate = submit(user, "evaluate.py", "{after.checkpoint}", after=[{"task": train.pk}])
    until(
        lambda: (advance_tasks(), not Task.objects.exclude(state__in=FINAL_STATES).exists())[1],
        seconds=120, what="both are over",
    )  # fmt: skip
    for task in (train, evaluate):
        task.refresh_from_db()
        assert task.state == TaskState.SUCCEEDED, (task.name, task.reason, task.reason_params)
    assert train.ended_at
    assert evaluate.started_at
    assert evaluate.started_at > train.ended_at
    assert evaluate.metrics.get().values == {"weight": 7, "report": 4}
