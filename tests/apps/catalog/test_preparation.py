"""A dataset version is prepared once, whoever races, and again after whoever did it was killed."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from apps.catalog import preparation
from apps.catalog.models import Dataset, DatasetVersion, VersionStatus
from apps.catalog.tasks import enqueue_due_versions
from apps.common import claims
from apps.common.clock import now
from fermi import tokenized_data
from tests.polling import until

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def version(transactional_db: None, tmp_path: Path, settings: Any) -> DatasetVersion:
    settings.DATA_DIR = tmp_path / "data"
    source = settings.DATA_DIR / "workspace" / "text"
    source.mkdir(parents=True)
    for n in range(30):
        (source / f"{n}.txt").write_text(f"line {n}\n" * 100)
    dataset = Dataset.objects.create(name="text")
    return DatasetVersion.objects.create(dataset=dataset, name="v1", source=str(source), due_at=now())


def held_up(monkeypatch: pytest.MonkeyPatch, wait: Callable[[], object]) -> None:
    """Makes tokenising call `wait` at its first sign of progress."""
    real = tokenized_data.tokenize_text

    def slow(
        source: Any, out_dir: Path, *, progress: tokenized_data.Progress, **more: Any
    ) -> tokenized_data.TokenizedPair:
        def report(done: int, total: int) -> None:
            progress(done, total)
            wait()

        return real(source, out_dir, progress=report, **more)

    monkeypatch.setattr(tokenized_data, "tokenize_text", slow)


def test_of_many_concurrent_calls_one_prepares_the_version(version: DatasetVersion) -> None:
    start = threading.Barrier(5)

    def run() -> bool:
        start.wait()
        try:
            return preparation.prepare_version(version.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(5) as pool:
        done = [future.result() for future in [pool.submit(run) for _ in range(5)]]
    assert done.count(True) == 1
    version.refresh_from_db()
    assert (version.status, version.due_at) == (VersionStatus.READY, None)


def test_a_ready_version_is_not_prepared_again(version: DatasetVersion) -> None:
    assert preparation.prepare_version(version.pk)
    before = DatasetVersion.objects.values().get()
    assert not preparation.prepare_version(version.pk)
    assert preparation.list_due_versions() == []
    assert DatasetVersion.objects.values().get() == before


def test_after_kill_9_the_sweep_prepares_the_version_again(
    version: DatasetVersion, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def die_later() -> None:
        begun.touch()
        signal.pause()

    connections.close_all()  # a child must not share them
    with monkeypatch.context() as patch:
        held_up(patch, die_later)
        child = multiprocessing.get_context("fork").Process(target=preparation.prepare_version, args=(version.pk,))
        child.start()
        until(begun.exists, what="the child begins to tokenise")
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    version.refresh_from_db()
    assert version.status == VersionStatus.PREPARING
    assert version.due_at > now(), "the dead process still seems to be at it"
    assert preparation.list_due_versions() == []

    DatasetVersion.objects.update(due_at=now())  # its claim runs out
    assert preparation.list_due_versions() == [version.pk]
    assert preparation.prepare_version(version.pk)
    version.refresh_from_db()
    assert version.status == VersionStatus.READY
    again = tokenized_data.inspect_pair(Path(version.train_path), Path(version.valid_path))
    assert (version.sha256, version.size_bytes) == (again.sha256, again.size_bytes)


def test_a_long_preparation_keeps_its_claim(version: DatasetVersion, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(60)

    held_up(monkeypatch, wait)
    monkeypatch.setattr(claims, "RENEWALS_PER_SPAN", 2000)

    def run() -> None:
        preparation.prepare_version(version.pk)
        connection.close()

    worker = threading.Thread(target=run)
    worker.start()
    assert begun.wait(60)
    first = DatasetVersion.objects.get().due_at
    until(lambda: DatasetVersion.objects.get().due_at > first, what="the claim is renewed")
    assert DatasetVersion.objects.get().progress > 0
    go_on.set()
    worker.join()
    assert DatasetVersion.objects.get().status == VersionStatus.READY


def test_an_unexpected_error_leaves_the_version_to_a_later_sweep(
    version: DatasetVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(tokenized_data, "tokenize_text", broken)
    with pytest.raises(RuntimeError):
        preparation.prepare_version(version.pk)
    version.refresh_from_db()
    assert version.status == VersionStatus.PREPARING
    assert preparation.list_due_versions() == [], "not at once, so that one bad version does not stop the others"


def test_the_sweep_works_without_a_broker(version: DatasetVersion, settings: Any) -> None:
    enqueue_due_versions()
    assert DatasetVersion.objects.get().status == VersionStatus.PREPARING
