"""`kubernetes`: a cluster for one test, which fails if the fake crashed or was sent an object that does not validate.

pytest_plugins = ["tests.fakes.kubernetes.fixtures"]
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.kubernetes.cluster import FakeCluster


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[FakeCluster]:
    cluster = FakeCluster(tmp_path / "kubernetes").start()
    try:
        yield cluster
    finally:
        cluster.close()
    assert not cluster.errors, "\n".join(cluster.errors)
