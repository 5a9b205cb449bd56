"""Makes a dataset version ready: token files checked and summed up, text tokenised.

preparing, due ──claim (compare-and-set on due_at)──▶ preparing, due again in CLAIM ──▶ ready | failed

While a process works it keeps pushing `due_at` ahead; when it dies, that stops, and the next sweep begins anew.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from apps.catalog import arriving, sources
from apps.catalog.models import DatasetVersion, VersionStatus
from apps.common.clock import now
from fermi import data

log = logging.getLogger(__name__)

CLAIM = timedelta(seconds=20)
BEAT_SECONDS = 5.0
PAIR = ("train.bin", "val.bin")
STDLIB = "python:stdlib"
"""The `source` of the demo dataset: the text of the running Python's standard library."""


def due() -> list[str]:
    rows = DatasetVersion.objects.filter(status=VersionStatus.PREPARING, due_at__lte=now())
    return list(rows.order_by("due_at").values_list("pk", flat=True))


def prepare(version_id: str) -> bool:
    """False = somebody else has it, or nothing is to be done."""
    version = (
        DatasetVersion.objects.select_related("dataset")
        .filter(pk=version_id, status=VersionStatus.PREPARING, due_at__lte=now())
        .first()
    )
    if version is None or version.due_at is None or not _claim(version.pk, version.due_at):
        return False
    with _claimed(version.pk):
        try:
            made = _make(version)
        except data.DataError as error:
            params = {name: str(value) for name, value in error.params.items()}
            _finish(version.pk, status=VersionStatus.FAILED, error={"code": error.code, **params})
        else:
            _finish(
                version.pk,
                status=VersionStatus.READY,
                progress=1.0,
                train_path=str(made.train_path),
                valid_path=str(made.valid_path),
                train_tokens=made.train_tokens,
                valid_tokens=made.valid_tokens,
                size_bytes=made.size_bytes,
                sha256=made.sha256,
                largest_token=made.largest_token,
                error=None,
            )
    return True


def _make(version: DatasetVersion) -> data.Tokenised:
    shown = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if done / total - shown >= 0.01:
            shown = done / total
            DatasetVersion.objects.filter(pk=version.pk).update(progress=shown)

    out = settings.DATA_DIR / "datasets" / version.pk
    if version.source == STDLIB:
        return data.tokenise(data.stdlib_text(), out, progress=progress)
    if version.source.startswith(arriving.PREFIX):
        scratch = out.with_name(f".{version.pk}")
        with arriving.brought(version.source, version.dataset.project_id or "", scratch) as source:
            if not any((source / name).exists() for name in PAIR):
                return data.tokenise(source, out, progress=progress, allowed=sources.is_allowed)
            out.mkdir(parents=True, exist_ok=True)
            for name in PAIR:
                if (source / name).exists():
                    (source / name).replace(out / name)
        return data.inspect_pair(out / PAIR[0], out / PAIR[1], progress=progress, allowed=sources.is_allowed)
    source = Path(version.source)
    train, valid = (source / name for name in PAIR)
    if train.exists() or valid.exists():
        return data.inspect_pair(train, valid, progress=progress, allowed=sources.is_allowed)
    return data.tokenise(source, out, progress=progress, allowed=sources.is_allowed)


def _claim(version_id: str, seen: datetime) -> bool:
    mine = DatasetVersion.objects.filter(pk=version_id, status=VersionStatus.PREPARING, due_at=seen)
    return bool(mine.update(due_at=now() + CLAIM))


@contextmanager
def _claimed(version_id: str) -> Iterator[None]:
    """Keeps the claim alive from a thread of its own, so that no long read or fsync lets it lapse."""
    done = threading.Event()

    def beat() -> None:
        try:
            while not done.wait(BEAT_SECONDS):
                rows = DatasetVersion.objects.filter(pk=version_id, status=VersionStatus.PREPARING)
                rows.update(due_at=now() + CLAIM)
        except Exception:  # the work goes on; at worst it is done twice, into the same files
            log.exception("cannot keep the claim on %s", version_id)
        finally:
            connection.close()

    thread = threading.Thread(target=beat, name=f"claim-{version_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _finish(version_id: str, **values: Any) -> None:
    """The first to finish counts; a ready version never changes again."""
    DatasetVersion.objects.filter(pk=version_id, status=VersionStatus.PREPARING).update(due_at=None, **values)
