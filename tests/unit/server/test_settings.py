"""The environment becomes settings."""

import threading
from pathlib import Path

import pytest

from server.settings import env


def test_the_secret_key_is_made_once_and_only_its_owner_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FERMI_SECRET_KEY", raising=False)
    keys: list[str] = []
    threads = [threading.Thread(target=lambda: keys.append(env.secret_key(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    assert len(keys[0]) >= 50
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("secret_key", 0o600)]


def test_a_given_secret_key_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMI_SECRET_KEY", "given")
    assert env.secret_key(tmp_path) == "given"
    assert list(tmp_path.iterdir()) == []


def test_a_postgres_url_becomes_a_database() -> None:
    entry = env.postgres("postgresql://fer%40mi:p%2Fw@db.example:6432/train?sslmode=require")
    assert entry["USER"] == "fer@mi"
    assert entry["PASSWORD"] == "p/w"
    assert (entry["HOST"], entry["PORT"], entry["NAME"]) == ("db.example", "6432", "train")
    assert entry["OPTIONS"]["sslmode"] == "require"
    assert entry["OPTIONS"]["pool"]["max_size"] == 20


def test_a_postgres_url_may_name_a_socket_folder() -> None:
    entry = env.postgres("postgresql:///fermi?host=/run/pg&user=me")
    assert (entry["HOST"], entry["USER"], entry["PORT"]) == ("/run/pg", "me", "")
    assert set(entry["OPTIONS"]) == {"pool"}


def test_another_kind_of_database_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"must begin with postgresql://, not mysql://"):
        env.postgres("mysql://x/y")


def test_celery_gets_its_own_spelling_of_a_socket() -> None:
    assert env.celery_url("unix:///data/run/broker.sock") == "redis+socket:///data/run/broker.sock"
    assert env.celery_url("redis://h:6379/0") == "redis://h:6379/0"


@pytest.mark.parametrize(("text", "value"), [("", True), ("0", False), ("no", False), ("False", False), ("1", True)])
def test_flags_are_read_the_way_people_write_them(text: str, value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMI_X", text)
    assert env.flag("FERMI_X", default=True) is value
