"""Makes coarser series from finer ones, and deletes expired blocks. Each step may be interrupted, repeated, or run by
two processes at once: a coarser block takes its values from a finer one, whatever it contained before."""

import logging

import numpy as np
import orjson
from django.db import transaction
from django.db.models import Q

from apps.common.clock import now
from apps.common.retention import delete_old
from apps.telemetry import block_store
from apps.telemetry.block_codec import ColumnBlock, downsample_block, sum_counters
from apps.telemetry.models import Block
from apps.telemetry.resolutions import COARSE, FINE, MAX_EARLY_SECONDS, MAX_LATE_SECONDS, RESOLUTIONS, Resolution

log = logging.getLogger(__name__)

MAX_FOLDED = 200
"""Blocks that are combined, and rows that are deleted, in one call."""


def fold_blocks() -> int:
    """Combine fine blocks that get no more values into coarser ones. Returns their number."""
    over = now().timestamp() - FINE.block - MAX_LATE_SECONDS - MAX_EARLY_SECONDS
    waiting = Block.objects.filter(grain=FINE.seconds, sealed=False, begins__lte=over).order_by("begins", "subject")
    done = 0
    for subject, begins in list(waiting.values_list("subject", "begins")[:MAX_FOLDED]):
        try:
            with transaction.atomic():
                done += _fold_block(subject, begins)
        except block_store.ConcurrentWriteError as error:
            log.warning("telemetry is combined by another process, too: %s", error)
    return done


def _fold_block(subject: str, begins: int) -> int:
    """Combine one block. It is sealed in the version that was read; what was written meanwhile is combined later."""
    block = block_store.load_block(FINE, subject, begins)
    if block is None:
        return 0
    for grain in COARSE:
        _merge_into(grain, subject, begins, downsample_block(block.values, grain.seconds // FINE.seconds))
    row = Block.objects.filter(subject=subject, grain=FINE.seconds, begins=begins, version=block.version)
    left = orjson.dumps({"counted": sums}) if (sums := sum_counters(block.values)) else b""
    return row.update(sealed=True, newest=left)


def _merge_into(grain: Resolution, subject: str, begins: int, part: ColumnBlock) -> None:
    begin = grain.find_block_start(begins)
    there = block_store.load_block(grain, subject, begin)
    values = there.values if there else ColumnBlock(grain.values)
    at = (begins - begin) // grain.seconds
    for key, column in part.columns.items():
        np.copyto(values.column(key)[at : at + part.count], column)
    values.emulated = values.emulated or part.emulated
    block_store.save_block(grain, subject, begin, values, there.version if there else 0)


def delete_expired() -> int:
    """Delete expired blocks. Returns their number."""
    moment = now().timestamp()
    old = (Q(grain=grain.seconds, begins__lt=moment - grain.kept - grain.block) for grain in RESOLUTIONS)
    return sum(delete_old(Block.objects.filter(each)) for each in old)
