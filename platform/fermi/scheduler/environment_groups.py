"""Groups environments of one kind with the same reservations. A scheduling pass works with groups, so that thousands of
equal environments cost what one does."""

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
    """Equal environments. `kind`: any of them; they differ in id, name, health and link alone. `kept`: a task that does
    not end before this time may not start there, because an earlier task starts then. `places`: the best last."""

    kind: Place
    windows: tuple[Reservation, ...] = ()
    kept: float = ALWAYS
    places: list[Place] = field(default_factory=list)
    linked: bool = False
    where: tuple[str, str] = ("", "")  # cluster and zone

    def open_at(self, project: str, now: float, run: float | None) -> bool:
        """Return whether a task of the project that holds for `run` seconds may start here now, as far as reservations
        of others go."""
        end = ALWAYS if run is None else now + run
        if end > self.kept:
            return False
        return not any(clashes(window, project, now, end) for window in self.windows)


def clashes(window: Reservation, project: str, begin: float, end: float) -> bool:
    """Return whether the reservation is another project's and overlaps the time between `begin` and `end`."""
    return (window.project is None or window.project != project) and window.begins < end and begin < window.ends


def quality(place: Place) -> tuple[int, str]:
    """Return the sort key by health: the best first."""
    return (place.health, place.id)


@dataclass(frozen=True, slots=True)
class Ask:
    """A task's request in a form that equal requests share. `filter`: which kinds suit, whatever their number, of those
    open to the project."""

    select: Select
    project: str
    cluster: str
    filter: tuple[Any, ...]
    gpu_types: frozenset[str]
    zones: frozenset[str]

    def suits(self, kind: Place) -> bool:
        """Return whether environments of this kind suit."""
        return (
            (kind.shared or kind.project == self.project)
            and self.cluster in ("", kind.cluster)
            and (not self.gpu_types or kind.gpu_type in self.gpu_types or not kind.gpus)
            and (not self.zones or kind.zone in self.zones)
            and of_kind(self.select, kind)
        )


class Stock:
    """A pool of environments in groups. `lots`: by what their environments have in common; `of`: the group by an
    environment's id."""

    def __init__(self, windows: Mapping[str, tuple[Reservation, ...]] | None = None) -> None:
        self.windows = windows or {}
        self.lots: dict[tuple[Any, ...], Lot] = {}
        self.of: dict[str, Lot] = {}
        # what matched before: of the shared lots, and with those of a project's own
        self._shared: dict[Any, tuple[Ask, list[Lot]]] = {}
        self._own: dict[str, list[Lot]] = {}
        self._whole: dict[Any, list[Lot]] = {}

    def fill(self, places: Iterable[Place], by: Callable[[Place], Any] = quality) -> None:
        """Add environments; the best of a group have the smallest sort key."""
        for place in places:
            self.put(place)
        for lot in self.lots.values():
            lot.places.sort(key=by, reverse=True)

    def put(self, place: Place, kept: float = ALWAYS) -> None:
        """Add an environment to its group."""
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
        """Remove an environment."""
        places = self.of.pop(place.id).places
        for at in range(len(places) - 1, -1, -1):
            if places[at] is place:
                del places[at]
                return

    def keep(self, place: Place, until: float) -> None:
        """Reserve an environment for an earlier task that starts at `until`."""
        self.take(place)
        self.put(place, until)
        self.of[place.id].places.sort(key=quality, reverse=True)

    def matching(self, ask: Ask) -> list[Lot]:
        """Return the groups of the kinds asked for, the smallest environments first, whether any are left in them or
        not."""
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
        """Return whether there is an environment that only this project may use."""
        own = self._own.get(project)
        return own is not None and any(lot.places for lot in own)

    def matches_shared(self, ask: Ask) -> bool:
        """Return whether any group of shared environments suits."""
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
    """Return what environments of one group have in common."""
    labels = tuple(sorted(place.labels.items())) if place.labels else ()
    owner = "" if place.shared else place.project
    made = bool(place.made_for)
    return (owner, place.shared, place.cluster, place.zone, place.zone_name, place.gpu_type, place.gpus, made, labels)


def ask(task: Waiting, project: Project | None = None) -> Ask:
    """Return the request of a task. `project`: limits what it may use; None: anything."""
    assert task.select is not None
    select = task.select
    labels = tuple(sorted(select.labels.items())) if select.labels else ()
    types, zones = (project.gpu_types, project.zones) if project else (_ANY, _ANY)
    wanted = (task.cluster, select.gpu_types, select.zones, labels, _least(select), types, zones)
    return Ask(select, task.project, task.cluster, wanted, types, zones)


_ANY: frozenset[str] = frozenset()


def of_kind(select: Select, place: Place) -> bool:
    """Return whether an environment is of the kind asked for, whoever holds it now; `exclude` does not count."""
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
    """Return the groups without the excluded environments."""
    if not exclude:
        return lots
    left = set(exclude)
    return [replace(lot, places=[place for place in lot.places if place.id not in left]) for lot in lots]
