from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus


@pytest.fixture
def project(user: User, settings: Any, tmp_path: Path) -> Project:
    """A project with one environment on this machine and a script that ends at once."""
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").write_text('print(\'{"step": 1, "loss": 1.0}\', flush=True)\n', "utf-8")
    cluster, zone = Cluster.objects.create(name="c", backend="local"), AvailabilityZone.objects.create(name="z")
    project = Project.objects.create(name="p")
    Membership.objects.create(project=project, user=user, role=Role.MEMBER)
    DevEnvironment.objects.create(
        id="env-a", name="gn-a", project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=1,
        emulated=True, status=EnvironmentStatus.RUNNING,
    )  # fmt: skip
    return project


@pytest.fixture
def request_body(project: Project) -> dict[str, Any]:
    return {
        "taskName": "nightly", "environmentIds": ["env-a"], "datasetId": None, "datasetVersionId": None,
        "entrypoint": {"script": f"{django_settings.DATA_DIR}/workspace/train.py"},
    }  # fmt: skip
