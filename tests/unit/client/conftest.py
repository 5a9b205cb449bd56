from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.client import Fermi, transport
from tests.fakes.api import FakeApi, serving


@pytest.fixture(autouse=True)
def empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No platform is known but the ones a test names."""
    for name in ("FERMI_URL", "FERMI_TOKEN", "FERMI_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setattr(transport, "MIN_PAUSE_S", 0.001)
    monkeypatch.setattr(transport, "MAX_PAUSE_S", 0.01)
    with serving() as fake:
        yield fake


@pytest.fixture
def fermi(api: FakeApi) -> Iterator[Fermi]:
    with Fermi(api.url, "secret") as client:
        yield client
