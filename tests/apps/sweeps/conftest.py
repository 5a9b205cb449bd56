from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import Cluster
from server import demo


@pytest.fixture
def member(db: None, settings: Any, tmp_path: Path) -> User:
    """A member of a project that has the demo inventory, env-001 … env-005."""
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").write_text('print(\'{"step": 1, "loss": 2.5}\')\n')
    user, project = User.objects.create_user("member"), Project.objects.create(pk="p", name="p")
    Membership.objects.create(user=user, project=project, role=Role.MEMBER)
    cluster = Cluster.objects.create(pk="local", name="local", backend="local")
    demo.add_environments(project, cluster, {"python": "3.11.9", "torch": "2.13.0"})
    return user
