"""Environments in lots: those of one kind, on which the same reservations lie. A decision looks at lots, so that
thousands of equal environments cost what one does."""

import math
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fermi.scheduler.snapshot import Place, Project, Reservation, Select, Waiting

NEVER = -math.inf
ALWAYS = math.inf


@dataclass(slots=True, eq=False)
class Lot:
    """`kind`: any of them; they differ in id, name, health and link alone. `kept`: whoever does not end before this
    moment may not start there, because an earlier task begins then. `places`: the best last."""

    kind: Place
    windows: tuple[Reservation, ...] = ()
    kept: float = ALWAYS
    places: list[Place] = field(default_factory=list)
    linked: bool = False
    where: tuple[str, str] = ("", "")  # cluster and zone

    def open_at(self, project: str, now: float, run: float | None) -> bool:
        """Whether a task of the project that holds for `run` may start here, as far as others' times go."""
        end = ALWAYS if run is None else now + run
        if end > self.kept:
            return False
        return not any(clashes(window, project, now, end) for window in self.windows)


def clashes(window: Reservation, project: str, begin: float, end: float) -> bool:
    return (window.project is None or window.project != project) and window.begins < end and begin < window.ends


def quality(place: Place) -> tuple[int, str]:
    return (place.health, place.id)


@dataclass(frozen=True, slots=True)
class Ask:
    """A task's wish as something that equal wishes share. `filter` says which kinds suit, whatever their number, of
    those that are open to the project."""

    select: Select
    project: str
    cluster: str
    filter: tuple[Any, ...]
    gpu_types: frozenset[str]
    zones: frozenset[str]

    def suits(self, kind: Place) -> bool:
        return (
            (kind.shared or kind.project == self.project)
            and self.cluster in ("", kind.cluster)
            and (not self.gpu_types or kind.gpu_type in self.gpu_types or not kind.gpus)
            and (not self.zones or kind.zone in self.zones)
            and of_kind(self.select, kind)
        )


class Stock:
    def __init__(self, windows: Mapping[str, tuple[Reservation, ...]] | None = None) -> None:
        self.windows = windows or {}
        self.lots: dict[tuple[Any, ...], Lot] = {}
        self.of: dict[str, Lot] = {}
        # what matched before: of the shared lots, and with those of a project's own
        self._shared: dict[Any, tuple[Ask, list[Lot]]] = {}
        self._own: dict[str, list[Lot]] = {}
        self._whole: dict[Any, list[Lot]] = {}

    def fill(self, places: Iterable[Place], by: Callable[[Place], Any] = quality) -> None:
        """`by`: the best of a lot have the least."""
        for place in places:
            self.put(place)
        for lot in self.lots.values():
            lot.places.sort(key=by, reverse=True)

    def put(self, place: Place, kept: float = ALWAYS) -> None:
        windows = self.windows.get(place.id, ())
        key = (*kind(place), kept, *(window.id for window in windows))
        lot = self.lots.get(key)
        if lot is None:
            lot = self.lots[key] = Lot(place, windows, kept, where=(place.cluster, place.zone))
            self._add(lot)
        lot.places.append(place)
        lot.linked = lot.linked or bool(place.link)
        self.of[place.id] = lot

    def take(self, place: Place) -> None:
        places = self.of.pop(place.id).places
        for at in range(len(places) - 1, -1, -1):
            if places[at] is place:
                del places[at]
                return

    def keep(self, place: Place, until: float) -> None:
        """For an earlier task that begins then."""
        self.take(place)
        self.put(place, until)
        self.of[place.id].places.sort(key=quality, reverse=True)

    def matching(self, ask: Ask) -> list[Lot]:
        """Of the kind that is asked for, the smallest first, whether any of it is left or not."""
        found = self._shared.get(ask.filter)
        if found is None:
            lots = [lot for lot in self.lots.values() if lot.kind.shared and ask.suits(lot.kind)]
            found = self._shared[ask.filter] = (ask, sorted(lots, key=_size))
        if ask.project not in self._own:
            return found[1]
        whole = self._whole.get((ask.project, ask.filter))
        if whole is None:
            own = [lot for lot in self._own[ask.project] if ask.suits(lot.kind)]
            whole = self._whole[ask.project, ask.filter] = sorted([*found[1], *own], key=_size)
        return whole

    def has_own(self, project: str) -> bool:
        """Whether any environment is there that only this project may use."""
        own = self._own.get(project)
        return own is not None and any(lot.places for lot in own)

    def matches_shared(self, ask: Ask) -> bool:
        self.matching(ask)
        return bool(self._shared[ask.filter][1])

    def _add(self, lot: Lot) -> None:
        if lot.kind.shared:
            for ask, lots in self._shared.values():
                if ask.suits(lot.kind):
                    insort(lots, lot, key=_size)
        else:
            self._own.setdefault(lot.kind.project, []).append(lot)
        self._whole.clear()


def _size(lot: Lot) -> int:
    return lot.kind.gpus


def kind(place: Place) -> tuple[Any, ...]:
    labels = tuple(sorted(place.labels.items())) if place.labels else ()
    owner = "" if place.shared else place.project
    made = bool(place.made_for)
    return (owner, place.shared, place.cluster, place.zone, place.zone_name, place.gpu_type, place.gpus, made, labels)


def ask(task: Waiting, project: Project | None = None) -> Ask:
    """`project`: what it may use; of an unknown one, anything."""
    assert task.select is not None
    select = task.select
    labels = tuple(sorted(select.labels.items())) if select.labels else ()
    types, zones = (project.gpu_types, project.zones) if project else (_ANY, _ANY)
    wanted = (task.cluster, select.gpu_types, select.zones, labels, _least(select), types, zones)
    return Ask(select, task.project, task.cluster, wanted, types, zones)


_ANY: frozenset[str] = frozenset()


def of_kind(select: Select, place: Place) -> bool:
    """Whether an environment is of the kind that was asked for, whoever has it now; `exclude` does not say kinds."""
    return (
        not place.made_for
        and (not select.gpu_types or place.gpu_type in select.gpu_types)
        and (not select.zones or place.zone in select.zones or place.zone_name in select.zones)
        and place.gpus >= _least(select)
        and all(place.labels.get(name) == value for name, value in select.labels.items())
    )


def _least(select: Select) -> int:
    return (select.gpus_per_node or int(select.on_gpus)) if select.total_gpus is None else 1


def without(lots: Sequence[Lot], exclude: tuple[str, ...]) -> Sequence[Lot]:
    """As if the excluded environments were not there."""
    if not exclude:
        return lots
    left = set(exclude)
    return [replace(lot, places=[place for place in lot.places if place.id not in left]) for lot in lots]
