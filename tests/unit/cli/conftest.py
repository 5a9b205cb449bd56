from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fermi.cli import texts
from fermi.cli.main import run_command
from fermi.client import transport
from tests.fakes.api import FakeApi, serving


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No platform is known but the ones a test names."""
    for name in ("FERMI_URL", "FERMI_TOKEN", "FERMI_DATA", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    texts.set_language("en")
    return tmp_path


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setattr(transport, "MIN_PAUSE_S", 0.001)
    monkeypatch.setattr(transport, "MAX_PAUSE_S", 0.01)
    with serving() as fake:
        monkeypatch.setenv("FERMI_URL", fake.url)
        monkeypatch.setenv("FERMI_TOKEN", "secret")
        yield fake


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `fermi` in this process, in English unless told otherwise."""

    def execute(*arguments: str, lang: str = "en") -> Result:
        head, *rest = arguments
        code = run_command([head, "--lang", lang, *rest])
        return Result(code, *capsys.readouterr())

    return execute
