"""Migrations are asked for when they may be needed, and only then."""

import sqlite3
from pathlib import Path

import pytest

from server.up import schema


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)


def migrated(data: Path, *names: str) -> None:
    with sqlite3.connect(data / "fermi.sqlite3") as database:
        database.execute("CREATE TABLE IF NOT EXISTS django_migrations (id INTEGER PRIMARY KEY, app TEXT, name TEXT)")
        database.executemany("INSERT INTO django_migrations (app, name) VALUES ('x', ?)", [(name,) for name in names])


def test_a_new_data_directory_needs_migrations(tmp_path: Path) -> None:
    assert schema.needs_migration(tmp_path)


def test_a_database_migrated_by_this_code_does_not(tmp_path: Path) -> None:
    migrated(tmp_path, "0001")
    schema.record_migrated(tmp_path)
    assert not schema.needs_migration(tmp_path)


def test_a_restored_older_database_needs_migrations(tmp_path: Path) -> None:
    migrated(tmp_path, "0001", "0002")
    schema.record_migrated(tmp_path)
    (tmp_path / "fermi.sqlite3").unlink()
    migrated(tmp_path, "0001")
    assert schema.needs_migration(tmp_path)


def test_changed_migrations_have_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "code"
    (code / "apps" / "training" / "migrations").mkdir(parents=True)
    (code / "requirements.txt").write_text("django==5.2\n")
    monkeypatch.setattr(schema.paths, "ROOT", code)
    migrated(tmp_path, "0001")
    schema.record_migrated(tmp_path)
    assert not schema.needs_migration(tmp_path)
    (code / "apps" / "training" / "migrations" / "0002_more.py").write_text("")
    assert schema.needs_migration(tmp_path)


def test_an_external_database_is_always_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrated(tmp_path, "0001")
    schema.record_migrated(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "postgresql://db/fermi")
    assert schema.needs_migration(tmp_path)
