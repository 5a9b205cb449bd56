"""What is shipped for deploying, run for real: `make test-deploy`. It takes many minutes and packages that nothing else
needs, so it is no part of `make test`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import images
from tests.deploy.compose import Api, Compose
from tests.deploy.engine import Engine, private
from tests.deploy.hosts import Hosts

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("FERMI_TEST_DEPLOY"):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="runs in `make test-deploy`"))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    own = Engine({})
    if own.answers():
        yield own
        return
    with private() as started:
        if started is None:
            pytest.skip("no Docker engine answers, and none could be started (root, and Debian's docker.io)")
        yield started


@pytest.fixture(scope="session")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ours, from the Dockerfile as it is."""
    if not engine.compose():
        pytest.skip("neither `docker compose` nor docker-compose is installed")
    try:
        images.provide(engine, tmp_path_factory.mktemp("images"))
    except images.Missing as missing:
        pytest.skip(str(missing))
    engine.docker("build", "--network", "host", "--file", "deploy/docker/Dockerfile", "--tag", "fermi:0.1.0", ".")
    return "fermi:0.1.0"


@pytest.fixture(scope="session")
def platform(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    compose = Compose(engine, tmp_path_factory.mktemp("compose"))
    try:
        yield compose
    finally:
        compose.close()


@pytest.fixture(scope="session")
def api(platform: Compose) -> Api:
    """The administrator's, of the platform that serves."""
    platform.up("--no-build")
    platform.create_administrator()
    return platform.sign_in()


@pytest.fixture(scope="session")
def hosts(platform: Compose) -> Iterator[Hosts]:
    made = Hosts(platform)
    try:
        yield made
    finally:
        made.close()
