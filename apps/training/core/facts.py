"""Stores what the nodes of attempts report that they run with, and reads it.

The node sends a hash of a variable. What is stored is keyed with the platform's secret on top, so that nobody who
reads the database can guess values; it is compared here, and given to no one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q
from django.utils.crypto import salted_hmac

from apps.common.clock import now
from apps.training.models import AttemptFacts, FactSet, FactSetKind
from fermi.metrics.facts import compute_digest

HASH_DIGITS = 16
USED_PRECISION = timedelta(hours=1)
UNUSED_AGE = timedelta(days=1)
"""After so long a set that no row refers to is deleted. One that was reported just now has a row soon."""
MAX_DELETED_SETS = 500


class NodePlace(NamedTuple):
    """A node of a task: its rank, the id of its environment (its name, if that is gone), and its name."""

    node_rank: int
    key: str
    name: str


@dataclass(slots=True)
class ReportedFacts:
    """Facts of a node that were read. `lists`: complete ones, by kind of their set."""

    values: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, Mapping[str, str]] = field(default_factory=dict)


def store_facts(task_id: str, attempt: int, node: NodePlace, found: ReportedFacts) -> None:
    """Add facts to those of a node. Call it in the transaction that stores what was read of its log."""
    if not found.values and not found.lists:
        return
    keys = {"task_id": task_id, "attempt": attempt, "node_rank": node.node_rank}
    row = AttemptFacts.objects.filter(**keys).first() or AttemptFacts(**keys)
    row.node, row.values = node.name[:100], {**row.values, **found.values}
    for kind, items in found.lists.items():
        setattr(row, f"{kind}_id", _store_set(FactSetKind(kind), items))
    row.save()


def _store_set(kind: FactSetKind, items: Mapping[str, str]) -> str:
    if kind is FactSetKind.VARIABLES:
        items = {name: _key_hash(name, value) for name, value in items.items()}
    digest, moment = compute_digest(kind, items), now()
    FactSet.objects.bulk_create(
        [FactSet(digest=digest, kind=kind, items=dict(items), used_at=moment)], ignore_conflicts=True
    )
    FactSet.objects.filter(pk=digest, used_at__lt=moment - USED_PRECISION).update(used_at=moment)
    return digest


def _key_hash(name: str, value: str) -> str:
    return value and salted_hmac("fermi.facts", f"{name}\0{value}", algorithm="sha256").hexdigest()[:HASH_DIGITS]


def list_newest_facts(task_id: str, attempt: int | None = None) -> list[AttemptFacts]:
    """Return the facts of each node, in the order of nodes: those of an attempt, by default of the newest that has
    some."""
    rows = AttemptFacts.objects.filter(task=task_id).select_related("packages", "variables")
    if attempt is None:
        attempt = rows.order_by("-attempt").values_list("attempt", flat=True).first()
    return list(rows.filter(attempt=attempt).order_by("node_rank")) if attempt is not None else []


def delete_unused_sets() -> int:
    """Delete sets that no node refers to any more, and return how many."""
    named = AttemptFacts.objects.filter(Q(packages=OuterRef("pk")) | Q(variables=OuterRef("pk")))
    rows = FactSet.objects.filter(~Exists(named), used_at__lt=now() - UNUSED_AGE)
    unused = list(rows.values_list("pk", flat=True)[:MAX_DELETED_SETS])
    return FactSet.objects.filter(pk__in=unused).delete()[0]
