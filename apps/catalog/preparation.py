"""Prepares a dataset version: checks and hashes token files, tokenises text.

preparing, due ──claim (compare-and-set on due_at)──▶ preparing, due again after CLAIM_SPAN ──▶ ready | failed

A process renews its claim while it works (`apps.common.claims`). If it dies, the claim lapses, and the next sweep
starts again.
"""

from datetime import timedelta
from pathlib import Path

from django.conf import settings

from apps.catalog import project_files, sources
from apps.catalog.models import DatasetVersion, VersionStatus
from apps.common import claims
from apps.common.clock import now
from fermi import tokenized_data

CLAIM_SPAN = timedelta(seconds=20)
PAIR_FILE_NAMES = ("train.bin", "val.bin")
STDLIB_SOURCE = "python:stdlib"
"""The `source` of the demo dataset: the source text of the running Python's standard library."""


def list_due_versions() -> list[str]:
    """Return the ids of versions whose preparation is due, the oldest first."""
    rows = DatasetVersion.objects.filter(status=VersionStatus.PREPARING, due_at__lte=now())
    return list(rows.order_by("due_at").values_list("pk", flat=True))


def prepare_version(version_id: str) -> bool:
    """Prepare a version and store the result. Returns False if another process has it, or if it is not due."""
    version = (
        DatasetVersion.objects.select_related("dataset")
        .filter(pk=version_id, status=VersionStatus.PREPARING, due_at__lte=now())
        .first()
    )
    claim = claims.claim_row(version, CLAIM_SPAN) if version else None
    if version is None or claim is None:
        return False
    with claim.kept():
        try:
            made = _build_token_files(version, claim)
        except tokenized_data.DataError as error:
            params = {name: str(value) for name, value in error.params.items()}
            claim.write(due_at=None, status=VersionStatus.FAILED, error={"code": error.code, **params})
        else:
            claim.write(
                due_at=None,
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


def _build_token_files(version: DatasetVersion, claim: claims.RowClaim) -> tokenized_data.TokenizedPair:
    shown = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if done / total - shown >= 0.01:
            shown = done / total
            claim.write(progress=shown)

    out = settings.DATA_DIR / "datasets" / version.pk
    if version.source == STDLIB_SOURCE:
        return tokenized_data.tokenize_text(tokenized_data.iter_stdlib_files(), out, progress=progress)
    if version.source.startswith(project_files.SOURCE_PREFIX):
        scratch = out.with_name(f".{version.pk}")
        with project_files.copy_temporarily(version.source, version.dataset.project_id or "", scratch) as source:
            if not any((source / name).exists() for name in PAIR_FILE_NAMES):
                return tokenized_data.tokenize_text(source, out, progress=progress, allowed=sources.is_allowed)
            out.mkdir(parents=True, exist_ok=True)
            for name in PAIR_FILE_NAMES:
                if (source / name).exists():
                    (source / name).replace(out / name)
        return tokenized_data.inspect_pair(
            out / PAIR_FILE_NAMES[0], out / PAIR_FILE_NAMES[1], progress=progress, allowed=sources.is_allowed
        )
    source = Path(version.source)
    train, valid = (source / name for name in PAIR_FILE_NAMES)
    if train.exists() or valid.exists():
        return tokenized_data.inspect_pair(train, valid, progress=progress, allowed=sources.is_allowed)
    return tokenized_data.tokenize_text(source, out, progress=progress, allowed=sources.is_allowed)
