"""Groups environments of one kind with the same reservations. A scheduling pass works with groups, so that thousands of
equal environments cost what one does."""

import math
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fermi.scheduler.snapshot import EnvironmentInfo, Project, Reservation, Select, WaitingTask

NEVER = -math.inf
ALWAYS = math.inf


@dataclass(slots=True, eq=False)
class EnvironmentGroup:
    """Equal environments. `kind`: any of them; they differ in id, name, health and link alone. `kept`: a task that does
    not end before this time may not start there, because an earlier task starts then. `places`: the best last."""

    kind: EnvironmentInfo
    windows: tuple[Reservation, ...] = ()
    kept: float = ALWAYS
    places: list[EnvironmentInfo] = field(default_factory=list)
    linked: bool = False
    where: tuple[str, str] = ("", "")  # cluster and zone

    def open_at(self, project: str, now: float, run: float | None) -> bool:
        """Return whether a task of the project that holds for `run` seconds may start here now, as far as reservations
        of others go."""
        end = ALWAYS if run is None else now + run
        if end > self.kept:
            return False
        return not any(conflicts_with(window, project, now, end) for window in self.windows)


def conflicts_with(window: Reservation, project: str, begin: float, end: float) -> bool:
    """Return whether the reservation is another project's and overlaps the time between `begin` and `end`."""
    return (window.project is None or window.project != project) and window.begins < end and begin < window.ends


def quality_key(environment: EnvironmentInfo) -> tuple[int, str]:
    """Return the sort key by health: the best first."""
    return (environment.health, environment.id)


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """A task's request in a form that equal requests share. `filter`: which kinds suit, whatever their number, of those
    open to the project."""

    select: Select
    project: str
    cluster: str
    filter: tuple[Any, ...]
    gpu_types: frozenset[str]
    zones: frozenset[str]

    def suits(self, kind: EnvironmentInfo) -> bool:
        """Return whether environments of this kind suit."""
        return (
            (kind.shared or kind.project == self.project)
            and self.cluster in ("", kind.cluster)
            and (not self.gpu_types or kind.gpu_type in self.gpu_types or not kind.gpus)
            and (not self.zones or kind.zone in self.zones)
            and is_of_kind(self.select, kind)
        )


class EnvironmentPool:
    """A pool of environments in groups. `lots`: by what their environments have in common; `of`: the group by an
    environment's id."""

    def __init__(self, windows: Mapping[str, tuple[Reservation, ...]] | None = None) -> None:
        self.windows = windows or {}
        self.lots: dict[tuple[Any, ...], EnvironmentGroup] = {}
        self.of: dict[str, EnvironmentGroup] = {}
        # what matched before: of the shared lots, and with those of a project's own
        self._shared: dict[Any, tuple[CapacityRequest, list[EnvironmentGroup]]] = {}
        self._own: dict[str, list[EnvironmentGroup]] = {}
        self._whole: dict[Any, list[EnvironmentGroup]] = {}

    def fill(self, places: Iterable[EnvironmentInfo], sort_key: Callable[[EnvironmentInfo], Any] = quality_key) -> None:
        """Add environments; the best of a group have the smallest sort key."""
        for place in places:
            self.add(place)
        for lot in self.lots.values():
            lot.places.sort(key=sort_key, reverse=True)

    def add(self, environment: EnvironmentInfo, reserved_until: float = ALWAYS) -> None:
        """Add an environment to its group."""
        windows = self.windows.get(environment.id, ())
        key = (*kind_key(environment), reserved_until, *(window.id for window in windows))
        lot = self.lots.get(key)
        if lot is None:
            lot = self.lots[key] = EnvironmentGroup(
                environment, windows, reserved_until, where=(environment.cluster, environment.zone)
            )
            self._add(lot)
        lot.places.append(environment)
        lot.linked = lot.linked or bool(environment.link)
        self.of[environment.id] = lot

    def remove(self, environment: EnvironmentInfo) -> None:
        """Remove an environment."""
        places = self.of.pop(environment.id).places
        for at in range(len(places) - 1, -1, -1):
            if places[at] is environment:
                del places[at]
                return

    def reserve(self, environment: EnvironmentInfo, until: float) -> None:
        """Reserve an environment for an earlier task that starts at `until`."""
        self.remove(environment)
        self.add(environment, until)
        self.of[environment.id].places.sort(key=quality_key, reverse=True)

    def list_matching(self, request: CapacityRequest) -> list[EnvironmentGroup]:
        """Return the groups of the kinds asked for, the smallest environments first, whether any are left in them or
        not."""
        found = self._shared.get(request.filter)
        if found is None:
            lots = [lot for lot in self.lots.values() if lot.kind.shared and request.suits(lot.kind)]
            found = self._shared[request.filter] = (request, sorted(lots, key=_size_key))
        if request.project not in self._own:
            return found[1]
        whole = self._whole.get((request.project, request.filter))
        if whole is None:
            own = [lot for lot in self._own[request.project] if request.suits(lot.kind)]
            whole = self._whole[request.project, request.filter] = sorted([*found[1], *own], key=_size_key)
        return whole

    def has_own_groups(self, project: str) -> bool:
        """Return whether there is an environment that only this project may use."""
        own = self._own.get(project)
        return own is not None and any(lot.places for lot in own)

    def matches_shared(self, request: CapacityRequest) -> bool:
        """Return whether any group of shared environments suits."""
        self.list_matching(request)
        return bool(self._shared[request.filter][1])

    def _add(self, group: EnvironmentGroup) -> None:
        if group.kind.shared:
            for ask, lots in self._shared.values():
                if ask.suits(group.kind):
                    insort(lots, group, key=_size_key)
        else:
            self._own.setdefault(group.kind.project, []).append(group)
        self._whole.clear()


def _size_key(group: EnvironmentGroup) -> int:
    return group.kind.gpus


def kind_key(environment: EnvironmentInfo) -> tuple[Any, ...]:
    """Return what environments of one group have in common."""
    labels = tuple(sorted(environment.labels.items())) if environment.labels else ()
    owner = "" if environment.shared else environment.project
    made = bool(environment.made_for)
    return (
        owner,
        environment.shared,
        environment.cluster,
        environment.zone,
        environment.zone_name,
        environment.gpu_type,
        environment.gpus,
        made,
        labels,
    )


def build_request(task: WaitingTask, project: Project | None = None) -> CapacityRequest:
    """Return the request of a task. `project`: limits what it may use; None: anything."""
    assert task.select is not None
    select = task.select
    labels = tuple(sorted(select.labels.items())) if select.labels else ()
    types, zones = (project.gpu_types, project.zones) if project else (_ANY_VALUE, _ANY_VALUE)
    wanted = (task.cluster, select.gpu_types, select.zones, labels, _get_min_gpus(select), types, zones)
    return CapacityRequest(select, task.project, task.cluster, wanted, types, zones)


_ANY_VALUE: frozenset[str] = frozenset()


def is_of_kind(select: Select, environment: EnvironmentInfo) -> bool:
    """Return whether an environment is of the kind asked for, whoever holds it now; `exclude` does not count."""
    return (
        not environment.made_for
        and (not select.gpu_types or environment.gpu_type in select.gpu_types)
        and (not select.zones or environment.zone in select.zones or environment.zone_name in select.zones)
        and environment.gpus >= _get_min_gpus(select)
        and all(environment.labels.get(name) == value for name, value in select.labels.items())
    )


def _get_min_gpus(select: Select) -> int:
    return (select.gpus_per_node or int(select.on_gpus)) if select.total_gpus is None else 1


def exclude_environments(groups: Sequence[EnvironmentGroup], exclude: tuple[str, ...]) -> Sequence[EnvironmentGroup]:
    """Return the groups without the excluded environments."""
    if not exclude:
        return groups
    left = set(exclude)
    return [replace(lot, places=[place for place in lot.places if place.id not in left]) for lot in groups]
