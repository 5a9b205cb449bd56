"""Rows of blocks. Reads and writes are merged by `version`: of two writers neither loses the other's values."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from django.db import IntegrityError, transaction

from apps.common.sql import split_keys
from apps.telemetry.block_codec import ColumnBlock, pack_block, unpack_block
from apps.telemetry.models import Block
from apps.telemetry.resolutions import Resolution

MAX_TRIES = 8


class StoredBlock(NamedTuple):
    """A block as it was read."""

    subject: str
    begins: int
    values: ColumnBlock
    version: int


class ConcurrentWriteError(Exception):
    """Other processes kept writing the block between read and write."""


def load_blocks(
    grain: Resolution,
    subjects: Sequence[str],
    begins: float,
    ends: float,
    metrics: Collection[str] | None = None,
    **conditions: object,
) -> Iterator[StoredBlock]:
    """Yield the blocks that overlap a period (unix seconds). `metrics`: only these are unpacked; None: all."""
    for some in split_keys(subjects):
        rows = Block.objects.filter(
            subject__in=some, grain=grain.seconds, begins__gt=begins - grain.block, begins__lt=ends, **conditions
        )
        for subject, began, data, version in rows.values_list("subject", "begins", "data", "version").iterator():
            yield StoredBlock(subject, began, unpack_block(data, metrics), version)


def load_block(grain: Resolution, subject: str, begins: int) -> StoredBlock | None:
    """Return one block, or None."""
    return next(load_blocks(grain, [subject], begins, begins + 1), None)


def save_block(
    grain: Resolution, subject: str, begins: int, values: ColumnBlock, version: int, newest: bytes = b""
) -> int:
    """Write a block over `version` of it (0: there was none), and return its new version. If another process has
    written since, the values that `values` does not have are merged in first. Raises ConcurrentWriteError."""
    row = {"subject": subject, "grain": grain.seconds, "begins": begins}
    for _ in range(MAX_TRIES):
        fields = {"data": pack_block(values), "newest": newest, "version": version + 1}
        if version:
            if Block.objects.filter(**row, version=version).update(**fields):
                return version + 1
        else:
            try:
                with transaction.atomic():
                    Block.objects.create(**row, **fields)
                return 1
            except IntegrityError:
                pass  # there is one by now
        there = load_block(grain, subject, begins)
        version = there.version if there else 0
        if there:
            values.fill(there.values)
    raise ConcurrentWriteError(f"{subject}, {grain.seconds} s, {begins}")
