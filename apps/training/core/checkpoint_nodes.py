"""Joins what the nodes of an attempt report of the checkpoints in their files, and tells which nodes have one.

    one folder that all nodes see     all report the same files: one row, which says that all have it
    disks of the nodes' own           each reports its part: one row, complete once the parts of all ranks are known
    one node alone                    one row with that node

A row's `nodes` has, by environment: `name`, `identity` (the same for nodes that see the same files), and of what ranks
save together `parts` (`0-3`) and `needed` (how many there are; 0: nothing says so). `best_step`: of the
checkpoint that the script held for the best when it saved this one.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.training.models import Checkpoint
from fermi.engines.base import Backend
from fermi.jobs.user_paths import find_task_folder
from fermi.metrics.records import PART_LAYOUT, FoundCheckpoint, parse_numbers


def describe_report(found: FoundCheckpoint, name: str) -> dict[str, Any]:
    """Return what a node says of a checkpoint, as a row has it."""
    is_part = found.parts or found.parts_needed
    parts = {"parts": found.parts, "needed": found.parts_needed or 0} if is_part else {}
    whole = {} if found.layout == PART_LAYOUT else {"whole": True}
    best = {} if found.best_step is None else {"best_step": found.best_step}
    return {"name": name, "identity": found.identity, "size": found.size_bytes or 0, **parts, **whole, **best}


def join_report(known: Checkpoint | None, report: Checkpoint) -> tuple[Checkpoint, bool]:
    """Return the row that follows from what was known of the path and the report of one node, and whether a complete
    checkpoint is new with it."""
    [(key, said)] = report.nodes.items()
    if known is None or known.attempt != report.attempt or (key in known.nodes and known.step != report.step):
        if known is not None and known.attempt > report.attempt:
            return known, False
        report.is_complete = _is_complete(report.nodes)
        return report, report.is_complete
    was_complete, before = known.is_complete, known.nodes.get(key)
    nodes = {**known.nodes, key: said}
    leads = "whole" in said and not any("whole" in one for name, one in nodes.items() if name != key)
    row = report if leads else known
    row.nodes, row.is_complete, row.size_bytes = nodes, _is_complete(nodes), _sum_sizes(nodes)
    is_again = before is not None and before != said
    return row, row.is_complete and (not was_complete or is_again)


def _is_complete(nodes: Mapping[str, Any]) -> bool:
    """Return whether the nodes together have all of a checkpoint, as far as anything says what that is."""
    whole = [one for one in nodes.values() if "whole" in one]
    if any(not one.get("needed") for one in whole):
        return True
    known, needed = count_parts(nodes)
    return bool(whole) and known >= needed


def count_parts(nodes: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many parts of a checkpoint the nodes have, and how many there are; zeros where it has none."""
    parts = {number for one in nodes.values() for number in parse_numbers(one.get("parts", ""))}
    return len(parts), max((one.get("needed", 0) for one in nodes.values()), default=0)


def _sum_sizes(nodes: Mapping[str, Any]) -> int:
    """Return the bytes of all parts; of a checkpoint that is whole on each node, those of one."""
    sizes = {one["identity"]: one["size"] for one in nodes.values()}
    return sum(sizes.values()) if any("parts" in one for one in nodes.values()) else max(sizes.values(), default=0)


def list_node_names(nodes: Mapping[str, Any]) -> list[str]:
    """Return the names of the nodes that have a checkpoint, or a part of it."""
    return [str(one.get("name", key)) for key, one in nodes.items()]


def find_nodes_apart(backend: Backend, path: str) -> Mapping[str, Any] | None:
    """Return the nodes on whose own disks a task's checkpoint is, as far as is known, as in its row. None where the
    platform sees the folder, several nodes see the same one, or nothing is known."""
    if not backend.own_disks:
        return None
    folder = find_task_folder(settings.DATA_DIR, path)
    if folder is None or os.path.isdir(Path(path).parent):
        return None
    row = Checkpoint.objects.filter(task=folder.name, path=path, is_complete=True).only("nodes").first()
    if row is None or not row.nodes:
        return None
    identities = [one["identity"] for one in row.nodes.values()]
    return None if len(set(identities)) < len(identities) else row.nodes


def list_absent_nodes(nodes: Mapping[str, Any], chosen: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of those among the `chosen` nodes (id, name) that are not known to have a checkpoint."""
    return [name for key, name in chosen if key not in nodes]
