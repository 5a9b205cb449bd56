"""`make dev` starts again what is written in Python when its source changes, and leaves the rest alone."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from server import paths
from server.up import schema
from server.up.checks import StartupError
from server.up.child import ChildProcess, build_environment
from server.up.dev import DevPlatform, list_changed, scan_source
from server.up.listen_address import ListenAddress
from tests.polling import until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one app, whose database is up to date."""
    root = tmp_path / "repository"
    for folder in ("apps/training/migrations", "platform/server"):
        (root / folder).mkdir(parents=True)
    (root / "apps/training/models.py").write_text("a = 1\n")
    (root / "requirements.txt").write_text("")
    monkeypatch.setattr(paths, "ROOT", root)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    schema.record_migrated(tmp_path)
    return root


@pytest.fixture
def serving(root: Path, tmp_path: Path) -> Iterator[dict[str, ChildProcess]]:
    """Stand-ins for a part in Python and for those that have nothing to do with it, under the real loop."""
    platform = DevPlatform(tmp_path, ListenAddress("127.0.0.1", 8000))
    platform.record.open()
    platform.children = [ChildProcess(name, SLEEP, build_environment()) for name in ("web", "broker", "vite")]
    for child in platform.children:
        child.start()
        child.keep_running()
    loop = threading.Thread(target=platform._serve)
    loop.start()
    yield {child.name: child for child in platform.children}
    platform.ending.set()
    loop.join()
    for child in platform.children:
        child.stop()
        child.kill()


def test_written_added_and_removed_files_are_changes(root: Path) -> None:
    before = scan_source(root)
    written, added = root / "apps/training/models.py", root / "platform/server/added.toml"
    written.write_text("a = 10\n")
    added.touch()
    after = scan_source(root)
    assert list_changed(before, after) == [str(written), str(added)]
    added.unlink()
    assert list_changed(after, scan_source(root)) == [str(added)]


def test_editor_and_cache_files_are_no_changes(root: Path) -> None:
    before = scan_source(root)
    (root / "apps/training/__pycache__").mkdir()
    (root / "apps/training/__pycache__/models.cpython-311.pyc").touch()
    (root / "apps/training/.#models.py").touch()
    (root / "apps/training/models.py~").touch()
    assert list_changed(before, scan_source(root)) == []


def test_a_change_restarts_python_processes(root: Path, serving: dict[str, ChildProcess]) -> None:
    before = {name: child.process for name, child in serving.items()}
    added = root / "apps/training/added.py"

    def restarted() -> bool:
        added.write_text(added.read_text() + "#" if added.exists() else "")  # until the loop has its first look
        return serving["web"].process != before["web"]

    until(restarted, what="web is another process")
    assert [serving[name].process for name in ("broker", "vite")] == [before["broker"], before["vite"]]


def test_a_failing_migration_is_reported_and_stops_nothing(
    root: Path, serving: dict[str, ChildProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    before = serving["web"].process
    migration = root / "apps/training/migrations/0001_added.py"

    def restarted() -> bool:
        migration.write_text(migration.read_text() + "#" if migration.exists() else "")
        return serving["web"].process != before

    until(restarted, what="web is another process")
    assert "`manage.py migrate` ended with code 2" in capfd.readouterr().out


def test_the_dev_server_listens_on_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="this machine alone"):
        DevPlatform(tmp_path, ListenAddress("0.0.0.0", 8000)).run()
