"""Which environments a task gets that asked for capacity.

Of all that would do, one after the other: the fewest zones; the fewest GPUs left over; the fewest environments; the
healthiest; those that share a link; of zones, the one that is fullest already. So 14 GPUs are 2 + 4 + 8 before 8 + 8.
Exact in one zone; where it takes several zones, the best of the `COMBINATIONS` largest.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any

from fermi.launch.schedule.mixture import mixture
from fermi.launch.schedule.scene import Place, Project, Select, Waiting
from fermi.launch.schedule.stock import Lot, Stock, ask, of_kind, quality, without

COMBINATIONS = 64
ALTERNATIVES = 8


def matches(select: Select, place: Place) -> bool:
    """Whether the environment is of the kind that was asked for, whoever has it now."""
    return place.id not in select.exclude and of_kind(select, place)


def open_to(project: str, cluster: str, place: Place) -> bool:
    """Whether tasks of the project may run there. `cluster` empty: any."""
    return place.usable and (place.shared or place.project == project) and cluster in ("", place.cluster)


def choose(task: Waiting, free: Iterable[Place], project: Project | None = None) -> list[Place]:
    """The environments that suit best, master first; empty where they do not suffice. `project`: what it may use."""
    assert task.select is not None
    return pick(task.select, _lots(task, free, project))


def choices(task: Waiting, free: Iterable[Place], project: Project | None = None) -> Iterator[list[Place]]:
    """Different ones, the best first, `ALTERNATIVES` at most: for rules that may refuse the best."""
    assert task.select is not None
    return picks(task.select, _lots(task, free, project))


def _lots(task: Waiting, free: Iterable[Place], project: Project | None) -> Sequence[Lot]:
    stock, wish = Stock(), ask(task, project)
    stock.fill(place for place in free if place.usable)
    return without(stock.matching(wish), wish.select.exclude)


def pick(select: Select, lots: Sequence[Lot]) -> list[Place]:
    """Of lots that all suit, the smallest environments first."""
    clusters: dict[str, dict[str, list[Lot]]] = {}
    for lot in lots:
        if lot.places:
            clusters.setdefault(lot.kind.cluster, {}).setdefault(lot.kind.zone, []).append(lot)
    best: tuple[Any, list[Place]] | None = None
    for cluster in sorted(clusters):
        found = _in_cluster(select, clusters[cluster])
        if found and (best is None or found[0] < best[0]):
            best = found
    return best[1] if best else []


def picks(select: Select, lots: Sequence[Lot]) -> Iterator[list[Place]]:
    """The best; the best of each zone; the best with environments of one size."""
    seen: set[frozenset[str]] = set()
    zones = sorted({lot.kind.zone for lot in lots if lot.places})
    sizes = sorted({lot.kind.gpus for lot in lots if lot.places}, reverse=True)
    parts = [
        lots,
        *([lot for lot in lots if lot.kind.zone == zone] for zone in zones),
        *([lot for lot in lots if lot.kind.gpus == size] for size in sizes),
    ]
    for part in parts:
        found = pick(select, part)
        key = frozenset(place.id for place in found)
        if found and key not in seen:
            seen.add(key)
            yield found
            if len(seen) == ALTERNATIVES:
                return


def _in_cluster(select: Select, zones: dict[str, list[Lot]]) -> tuple[Any, list[Place]] | None:
    there = sorted(zones, key=lambda zone: (-_capacity(select, zones[zone]), zone))
    for number in range(1, 2 if select.same_zone else len(there) + 1):
        if sum(_capacity(select, zones[zone]) for zone in there[:number]) < _wanted(select):
            continue
        rated = []
        for some in [(zone,) for zone in there] if number == 1 else islice(combinations(there, number), COMBINATIONS):
            lots = zones[some[0]] if number == 1 else _together(zones[zone] for zone in some)
            if (taken := _sizes(select, lots)) is not None:
                waste, sizes = taken
                left = sum(len(lot.places) for lot in lots)
                rated.append(((number, waste, sum(sizes.values())), (left, some), lots, sizes))
        if rated:
            return _healthiest(rated)
    return None


def _together(parts: Iterable[list[Lot]]) -> list[Lot]:
    return sorted((lot for part in parts for lot in part), key=lambda lot: lot.kind.gpus)


def _healthiest(rated: list[Any]) -> tuple[Any, list[Place]]:
    """Of those that are equally good by number, the healthiest and closest; looked at until one is perfect."""
    rated.sort(key=lambda one: one[:2])
    best: tuple[Any, list[Place]] | None = None
    for key, left, lots, sizes in rated:
        if key != rated[0][0]:
            break
        places = _take(lots, sizes)
        health, links = sum(place.health for place in places), _links(places)
        if best is None or (health, links) < best[0][1:3]:
            best = ((key, health, links, left), places)
        if not health and links <= 1:
            break
    assert best is not None
    return best[0], in_rank_order(best[1])


def _wanted(select: Select) -> int:
    return (select.nodes or 1) if select.total_gpus is None else select.total_gpus


def _capacity(select: Select, lots: Iterable[Lot]) -> int:
    """As `_wanted` counts."""
    if select.total_gpus is None:
        return sum(len(lot.places) for lot in lots)
    return sum(len(lot.places) * lot.kind.gpus for lot in lots)


def _sizes(select: Select, lots: Sequence[Lot]) -> tuple[int, dict[int, int]] | None:
    """GPUs left over, and how many environments of each size; None: they do not suffice."""
    if select.total_gpus is not None:
        there: dict[int, int] = {}
        for lot in lots:
            there[lot.kind.gpus] = there.get(lot.kind.gpus, 0) + len(lot.places)
        found = mixture(there, select.total_gpus, select.nodes)
        return None if found is None else (sum(k * n for k, n in found.items()) - select.total_gpus, found)
    left, waste, sizes = select.nodes or 1, 0, dict[int, int]()
    for lot in lots:
        taken = min(left, len(lot.places))
        if taken:
            sizes[lot.kind.gpus] = sizes.get(lot.kind.gpus, 0) + taken
            waste += taken * (lot.kind.gpus - (select.gpus_per_node or 0))
            left -= taken
        if not left:
            return waste, sizes
    return None


def _take(lots: Sequence[Lot], sizes: dict[int, int]) -> list[Place]:
    places: list[Place] = []
    for size, count in sizes.items():
        same = [lot for lot in lots if lot.kind.gpus == size]
        if len(same) == 1 and not same[0].linked:
            places += same[0].places[-count:]
        else:
            some = count if not any(lot.linked for lot in same) else None
            there = [place for lot in same for place in (lot.places[-some:] if some else lot.places)]
            there.sort(key=quality)
            places += _linked(there, count, places)
    return places


def _linked(there: list[Place], count: int, others: list[Place]) -> list[Place]:
    """The `count` healthiest; of the equally healthy, those of the fewest links."""
    edge = there[count - 1].health
    sure = [place for place in there[:count] if place.health < edge]
    known = {place.link for place in (*sure, *others) if place.link}
    groups: dict[str, list[Place]] = {}
    for place in there[len(sure) :]:
        if place.health == edge:
            groups.setdefault(place.link or place.id, []).append(place)
    while left := count - len(sure):
        some = [link for link in groups if link in known] or list(groups)
        enough = [link for link in some if len(groups[link]) >= left]
        link = min(enough or some, key=lambda link: (len(groups[link]) if enough else -len(groups[link]), link))
        sure += groups.pop(link)[:left]
    return sure


def _links(places: Sequence[Place]) -> int:
    """How many groups of fast links; what is not known is one of its own, and all unknown is no worse than one."""
    known = {place.link for place in places if place.link}
    unknown = sum(not place.link for place in places)
    return len(known) + unknown if known else 1


def in_rank_order(places: Sequence[Place]) -> list[Place]:
    """The master has the most ranks; then those of its zone and link come first, so that neighbours are near."""
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
