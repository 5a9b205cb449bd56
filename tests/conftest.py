"""Fixtures for the whole suite. What a single area needs stays beside its tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import Running

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One real platform for the tests of a module that use it as its users do."""
    running = Running(tmp_path_factory.mktemp("platform") / "data").start()
    yield running
    running.close()
