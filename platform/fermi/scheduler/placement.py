"""Chooses the environments of a task that asked for capacity.

Criteria in this order: the fewest zones; the fewest GPUs left over; the fewest environments; the healthiest; those that
share a link; of zones, the one that is fullest already. So 14 GPUs are 2 + 4 + 8 before 8 + 8. Exact in one zone; where
several zones are needed, the best of the `MAX_COMBINATIONS` largest.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any

from fermi.scheduler.environment_groups import (
    EnvironmentGroup,
    EnvironmentPool,
    build_request,
    exclude_environments,
    is_of_kind,
    quality_key,
)
from fermi.scheduler.gpu_packing import choose_sizes
from fermi.scheduler.snapshot import EnvironmentInfo, Project, Select, WaitingTask

MAX_COMBINATIONS = 64
MAX_ALTERNATIVES = 8


def matches_request(select: Select, environment: EnvironmentInfo) -> bool:
    """Return whether the environment is of the kind asked for, whoever holds it now."""
    return environment.id not in select.exclude and is_of_kind(select, environment)


def is_open_to(project: str, cluster: str, environment: EnvironmentInfo) -> bool:
    """Return whether tasks of the project may run there. `cluster` empty: any."""
    return (
        environment.usable
        and (environment.shared or environment.project == project)
        and cluster in ("", environment.cluster)
    )


def choose_environments(
    task: WaitingTask, free: Iterable[EnvironmentInfo], project: Project | None = None
) -> list[EnvironmentInfo]:
    """Return the environments that suit best, master first; empty where they do not suffice. `project`: limits what may
    be used."""
    assert task.select is not None
    stock = EnvironmentPool()
    stock.fill(place for place in free if place.usable)
    return pick_environments(
        task.select, exclude_environments(stock.list_matching(build_request(task, project)), task.select.exclude)
    )


def pick_environments(select: Select, groups: Sequence[EnvironmentGroup]) -> list[EnvironmentInfo]:
    """Return the best environments of groups that all suit, given with the smallest environments first; empty where
    they do not suffice."""
    zones, wanted = _group_by_zone(select, groups), select.target
    rated: list[_Rated] = []
    for key, (there, some) in zones.items():
        if there >= wanted and (taken := _count_sizes(select, some)) is not None:
            rated.append((taken[0], (there, key), some, taken[1]))
    if rated:
        return _pick_healthiest(rated)[1]
    if select.same_zone or sum(there for there, _ in zones.values()) < wanted:
        return []
    found = [
        across
        for cluster in sorted({key[0] for key in zones})
        if (across := _pick_across_zones(select, zones, cluster))
    ]
    return min(found, key=lambda one: one[0])[1] if found else []


def has_enough(select: Select, groups: Sequence[EnvironmentGroup]) -> bool:
    """Return whether the groups suffice, whichever environments are chosen."""
    if select.total_gpus is not None and select.nodes is not None:
        return bool(pick_environments(select, groups))
    zones, wanted = _group_by_zone(select, groups), select.target
    if select.same_zone:
        return any(there >= wanted for there, _ in zones.values())
    clusters: dict[str, int] = {}
    for (cluster, _), (there, _) in zones.items():
        clusters[cluster] = clusters.get(cluster, 0) + there
    return any(there >= wanted for there in clusters.values())


def list_alternatives(select: Select, groups: Sequence[EnvironmentGroup]) -> Iterator[list[EnvironmentInfo]]:
    """Yield different choices, for rules that may refuse the best one: the best; the best of each zone; the best with
    environments of one size. At most `MAX_ALTERNATIVES`."""
    seen: set[frozenset[str]] = set()
    zones = sorted({lot.kind.zone for lot in groups if lot.places})
    sizes = sorted({lot.kind.gpus for lot in groups if lot.places}, reverse=True)
    parts = [
        groups,
        *([lot for lot in groups if lot.kind.zone == zone] for zone in zones),
        *([lot for lot in groups if lot.kind.gpus == size] for size in sizes),
    ]
    for part in parts:
        found = pick_environments(select, part)
        key = frozenset(place.id for place in found)
        if found and key not in seen:
            seen.add(key)
            yield found
            if len(seen) == MAX_ALTERNATIVES:
                return


_Zones = dict[tuple[str, str], tuple[int, list[EnvironmentGroup]]]
"""By cluster and zone: environments or GPUs, as `target` counts, and groups."""


def _group_by_zone(select: Select, groups: Iterable[EnvironmentGroup]) -> _Zones:
    zones: _Zones = {}
    mixed = select.total_gpus is not None
    for lot in groups:
        if count := len(lot.places):
            if mixed:
                count *= lot.kind.gpus
            there, some = zones.get(lot.where) or (0, [])
            some.append(lot)
            zones[lot.where] = (there + count, some)
    return zones


_Rated = tuple[tuple[int, int], tuple[int, Any], Sequence[EnvironmentGroup], dict[int, int]]
"""GPUs left over and environments; what is there, and where; groups; environments by size."""


def _pick_across_zones(select: Select, zones: _Zones, cluster: str) -> tuple[Any, list[EnvironmentInfo]] | None:
    """Choose from several zones, as few as possible."""
    there = sorted((key for key in zones if key[0] == cluster), key=lambda key: (-zones[key][0], key))
    for number in range(2, len(there) + 1):
        if sum(zones[key][0] for key in there[:number]) < select.target:
            continue
        rated: list[_Rated] = []
        for some in islice(combinations(there, number), MAX_COMBINATIONS):
            lots = sorted((lot for key in some for lot in zones[key][1]), key=lambda lot: lot.kind.gpus)
            if (taken := _count_sizes(select, lots)) is not None:
                rated.append((taken[0], (sum(zones[key][0] for key in some), some), lots, taken[1]))
        if rated:
            key, places = _pick_healthiest(rated)
            return (number, *key), places
    return None


def _pick_healthiest(rated: list[_Rated]) -> tuple[Any, list[EnvironmentInfo]]:
    """Return the healthiest and closest of equally good choices; stops at a perfect one."""
    least = min(one[0] for one in rated)
    best: tuple[Any, list[EnvironmentInfo]] | None = None
    for key, left, lots, sizes in sorted((one for one in rated if one[0] == least), key=lambda one: one[1]):
        places = _take_environments(lots, sizes)
        health, links = sum(place.health for place in places), _count_links(places)
        if best is None or (health, links) < best[0][1:3]:
            best = ((key, health, links, left), places)
        if not health and links <= 1:
            break
    assert best is not None
    return best[0], order_by_rank(best[1])


def _count_sizes(select: Select, groups: Sequence[EnvironmentGroup]) -> tuple[tuple[int, int], dict[int, int]] | None:
    """Return GPUs left over and number of environments, and how many of each size; None: they do not suffice."""
    if select.total_gpus is not None:
        there: dict[int, int] = {}
        for lot in groups:
            there[lot.kind.gpus] = there.get(lot.kind.gpus, 0) + len(lot.places)
        found = choose_sizes(there, select.total_gpus, select.nodes)
        if found is None:
            return None
        return (sum(k * n for k, n in found.items()) - select.total_gpus, sum(found.values())), found
    count = select.nodes or 1
    left, waste, sizes = count, 0, dict[int, int]()
    for lot in groups:
        taken = min(left, len(lot.places))
        if taken:
            sizes[lot.kind.gpus] = sizes.get(lot.kind.gpus, 0) + taken
            waste += taken * (lot.kind.gpus - (select.gpus_per_node or 0))
            left -= taken
        if not left:
            return (waste, count), sizes
    return None


def _take_environments(groups: Sequence[EnvironmentGroup], sizes: dict[int, int]) -> list[EnvironmentInfo]:
    places: list[EnvironmentInfo] = []
    for size, count in sizes.items():
        same = [lot for lot in groups if lot.kind.gpus == size]
        some = sorted((place for lot in same for place in lot.places[-count:]), key=quality_key)[:count]
        if any(lot.linked for lot in same) and len({place.link for place in (*places, *some)}) > 1:
            some = _pick_linked(sorted((place for lot in same for place in lot.places), key=quality_key), count, places)
        places += some
    return places


def _pick_linked(candidates: list[EnvironmentInfo], count: int, others: list[EnvironmentInfo]) -> list[EnvironmentInfo]:
    """Return the `count` healthiest; of equally healthy ones, those with the fewest links."""
    edge = candidates[count - 1].health
    sure = [place for place in candidates[:count] if place.health < edge]
    known = {place.link for place in (*sure, *others) if place.link}
    groups: dict[str, list[EnvironmentInfo]] = {}
    for place in candidates[len(sure) :]:
        if place.health == edge:
            groups.setdefault(place.link or place.id, []).append(place)
    while left := count - len(sure):
        some = [link for link in groups if link in known] or list(groups)
        enough = [link for link in some if len(groups[link]) >= left]
        link = min(enough or some, key=lambda link: (len(groups[link]) if enough else -len(groups[link]), link))
        sure += groups.pop(link)[:left]
    return sure


def _count_links(places: Sequence[EnvironmentInfo]) -> int:
    """Return the number of groups of fast links. An unknown link is one of its own, but all unknown counts as one."""
    if len(places) == 1:
        return 1
    known = {place.link for place in places if place.link}
    unknown = sum(not place.link for place in places)
    return len(known) + unknown if known else 1


def order_by_rank(places: Sequence[EnvironmentInfo]) -> list[EnvironmentInfo]:
    """Return the environments in the order of ranks: the master, which has the most ranks, then those of its zone and
    link, so that neighbouring ranks are near."""
    if len(places) == 1:
        return list(places)
    master = min(places, key=lambda place: (-place.processes, place.health, place.id))
    return sorted(
        places,
        key=lambda place: (
            place is not master,
            place.zone != master.zone,
            place.zone,
            place.link != master.link,
            place.link,
            -place.processes,
            place.id,
        ),
    )
