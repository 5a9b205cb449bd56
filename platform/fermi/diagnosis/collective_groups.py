"""Finds which collective of which group of ranks does not end, which ranks wait in it, and which are missing. Pure.

A group is identified by its members: each rank numbers groups as it joins them, so a number alone identifies nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fermi.jobs.spec import RankStatus

MAX_NAMED = 16


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """A rank in a collective. `members`: of its group; `root`: the rank that it comes from or goes to, None = unknown,
    or there is none."""

    rank: int
    op: str
    seq: int
    members: tuple[int, ...]
    name: str = ""
    root: int | None = None

    @property
    def key(self) -> tuple[tuple[int, ...], int]:
        return self.members, self.seq

    def __str__(self) -> str:
        named = f"group {self.name}" if self.name else "the group"
        return f"{self.op}, number {self.seq} of {named} of ranks {format_names(self.members)}"


@dataclass(frozen=True, slots=True)
class IncompleteCollective:
    """A collective that members of its group have not reached."""

    wait: CollectiveWait
    arrived: tuple[int, ...]
    missing: tuple[int, ...]


def list_waits(ranks: Iterable[RankStatus]) -> list[CollectiveWait]:
    """Return the ranks that are in a collective of a group whose members are known; point-to-point operations do not
    count."""
    found = []
    for rank in ranks:
        said = rank.stalled or {}
        op, name = said.get("op") or {}, str(said.get("in") or "")
        members = tuple(sorted(op.get("ranks") or ()))
        if name and rank.rank in members and not name.startswith(("send", "recv", "isend", "irecv")):
            found.append(
                CollectiveWait(rank.rank, name, op.get("seq") or 0, members, op.get("name") or "", op.get("root"))
            )
    return found


def find_overlapping(ranks: Iterable[RankStatus]) -> frozenset[int]:
    """Return ranks with several collectives under way (`async_op`, NCCL's streams): the one that they report says
    nothing of the others."""

    def under_way(rank: RankStatus) -> int:
        groups = ((rank.stalled or {}).get("flight") or {}).get("groups") or {}
        return sum(max(0, (one.get("enqueued") or 0) - (one.get("completed") or 0)) for one in groups.values())

    return frozenset(rank.rank for rank in ranks if under_way(rank) > 1)


def find_incomplete(waits: Sequence[CollectiveWait], unsure: Collection[int] = ()) -> list[IncompleteCollective]:
    """Return the collectives that lack a member, the smallest group first. `unsure`: ranks that may be in one
    nevertheless."""
    by_key: dict[tuple[tuple[int, ...], int], list[CollectiveWait]] = {}
    for wait in waits:
        by_key.setdefault(wait.key, []).append(wait)
    return sorted(
        (
            IncompleteCollective(there[0], tuple(sorted(one.rank for one in there)), missing)
            for there in by_key.values()
            if (missing := tuple(sorted(set(there[0].members) - {one.rank for one in there})))
            and not set(missing) & set(unsure)
        ),
        key=lambda one: (len(one.wait.members), one.arrived),
    )


def find_crossed_waits(
    waits: Sequence[CollectiveWait], unsure: Collection[int] = ()
) -> tuple[CollectiveWait, CollectiveWait] | None:
    """Return two ranks that wait for each other, each in another group's collective or in another one of the same
    group; the one that is missing from the smaller group second. None where there are no such two."""
    by_rank = {wait.rank: wait for wait in waits}
    for one in find_incomplete([wait for wait in waits if wait.rank not in unsure], unsure):
        for rank in one.missing:
            other = by_rank.get(rank)
            waiter = next((by_rank[r] for r in one.arrived if other and r in other.members), None)
            if other and waiter and other.key != waiter.key:
                return waiter, other
    return None


def find_differing_roots(waits: Sequence[CollectiveWait]) -> tuple[list[CollectiveWait], list[CollectiveWait]] | None:
    """Return the ranks in the same collective with different roots: those whose root most have, and the others. None
    where all agree."""
    by_key: dict[tuple[tuple[int, ...], int, str], list[CollectiveWait]] = {}
    for wait in waits:
        if wait.root is not None:
            by_key.setdefault((*wait.key, wait.op), []).append(wait)
    for there in by_key.values():
        counts = {root: [wait for wait in there if wait.root == root] for root in {wait.root for wait in there}}
        if len(counts) > 1:
            usual = max(counts.values(), key=lambda waits: (len(waits), -waits[0].rank))
            return usual, [wait for wait in there if wait not in usual]
    return None


def format_names(names: Sequence[int | str]) -> str:
    """Return the first `MAX_NAMED` ranks or nodes, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(map(str, names[:MAX_NAMED])) + (f", … (+{more})" if more > 0 else "")
