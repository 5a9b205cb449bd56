"""One real platform for the tests that kill parts of it."""

from collections.abc import Iterator

import pytest

from tests.platform_process import Running


@pytest.fixture(autouse=True)
def nothing_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test: no attempt of an ended task has a process."""
    yield
    if "platform" in request.fixturenames:
        platform: Running = request.getfixturevalue("platform")
        assert platform.strays() == []
