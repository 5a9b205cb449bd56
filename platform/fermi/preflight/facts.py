"""Sorts what the nodes of a pre-flight test printed. See `fermi.train.preflight` for what each prints, and when."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeUnderTest:
    """A node under test: its rank in the test, its id and name for people, and the GPUs that it is said to have (None:
    unknown, as in an exported job). `pod`: its pod's name; empty: it is none."""

    rank: int
    id: str
    name: str
    gpus: int | None = None
    pod: str = ""


@dataclass(slots=True)
class PreflightFacts:
    """Facts by rank, or by pair of ranks. `by_rank`: hello, node, devices, head, end. `received_from`: whose datagrams
    a node received."""

    by_rank: dict[int, dict[str, Fact]] = field(default_factory=lambda: defaultdict(dict))
    pairs: dict[tuple[int, int], Fact] = field(default_factory=dict)
    bandwidth: dict[tuple[int, int], float] = field(default_factory=dict)
    received_from: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    together: dict[int, Fact] = field(default_factory=dict)

    def get(self, rank: int, kind: str) -> Fact:
        """Return a fact; empty when it was not printed."""
        return self.by_rank.get(rank, {}).get(kind, {})

    def joined(self, rank: int) -> bool:
        """Return whether the node and the head found each other; the head is joined when it could listen."""
        return self.get(rank, "head").get("via") is not None


def parse_facts(data: bytes) -> Iterator[Fact]:
    """Yield the facts among everything that a node printed."""
    for line in data.split(b"\n"):
        if line.startswith(b'{"preflight":'):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and isinstance(found.get("rank"), int):
                yield found


def sort_facts(facts: Iterable[Mapping[str, Any]]) -> PreflightFacts:
    """Return the facts by rank and pair."""
    found = PreflightFacts()
    for fact in facts:
        rank, kind = fact["rank"], fact["preflight"]
        match kind:
            case "pair":
                found.pairs[rank, fact["to"]] = dict(fact)
            case "bandwidth":  # a pair may be measured again, and only the best counts: noise makes it less, never more
                key = rank, fact["to"]
                found.bandwidth[key] = max(found.bandwidth.get(key, 0.0), fact["mbps"])
            case "heard":
                found.received_from[rank] |= set(fact["from"])
            case "together":
                found.together[rank] = dict(fact)
            case _:
                found.by_rank[rank][kind] = dict(fact)
    return found
