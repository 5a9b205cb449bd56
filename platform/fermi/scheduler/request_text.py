"""Requests as text that needs no language (`3 × 4 A100`, `14 GPU`); whether one can be satisfied at all; and why just
these environments were chosen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fermi.jobs.spec import Problem
from fermi.scheduler.environment_groups import EnvironmentPool, build_request, exclude_environments
from fermi.scheduler.placement import is_open_to, matches_request, pick_environments
from fermi.scheduler.snapshot import EnvironmentInfo, Select, WaitingTask

SELECT_FIELD = "distributedConfig.select"
_NO_CONDITIONS = Select()


def format_request(select: Select, names: Mapping[str, str] | None = None) -> str:
    """Return the request as text. `names`: of zones by their ids."""
    zones = " / ".join((names or {}).get(zone, zone) for zone in select.zones)
    labels = (f"{key}={value}" for key, value in sorted(select.labels.items()))
    return " · ".join(part for part in (format_amount(select), zones, *labels) if part)


def format_amount(select: Select, count: int | None = None) -> str:
    """Return the amount: environments, or GPUs where these were asked for in any mixture. `count`: another number than
    the one asked for."""
    types = " / ".join(select.gpu_types)
    if select.total_gpus is not None:
        total = f"{select.total_gpus if count is None else count} {types or 'GPU'}"
        return f"{select.nodes} × ≥1, {total}" if select.nodes and count is None else total
    nodes = (select.nodes or 1) if count is None else count
    if select.gpus_per_node is not None:
        return f"{nodes} × {select.gpus_per_node} {types or 'GPU'}"
    if types:
        return f"{nodes} × {types}"
    return f"{nodes} × ≥1 GPU" if select.on_gpus else str(nodes)


def check_possible(select: Select, project: str, cluster: str, places: Iterable[EnvironmentInfo]) -> Problem | None:
    """Return what is wrong with a request that could not be satisfied even if all of these environments ran and were
    free; None: it could."""
    task = WaitingTask("", project, "", cluster, 0.0, select=select)
    there = [place for one in places if is_open_to(project, cluster, place := replace(one, usable=True))]
    stock, wish = EnvironmentPool(), build_request(task)
    stock.fill(there)
    lots = exclude_environments(stock.list_matching(wish), select.exclude)
    if pick_environments(select, lots):
        return None
    best = max(
        (select.counted(some) for some in _group_environments(select, [place for lot in lots for place in lot.places])),
        default=0,
    )
    params = {
        "wanted": format_request(select, {place.zone: place.zone_name for place in there}),
        "found": format_amount(select, best),
    }
    if excluded := _format_excluded(select, there):
        return Problem(SELECT_FIELD, "SELECT_IMPOSSIBLE", {**params, "excluded": excluded})
    return Problem(SELECT_FIELD, "SELECT_IMPOSSIBLE", params)


def _group_environments(select: Select, places: Sequence[EnvironmentInfo]) -> Iterable[list[EnvironmentInfo]]:
    """Return the environments that a task could have together."""
    groups: dict[tuple[str, str], list[EnvironmentInfo]] = {}
    for place in places:
        groups.setdefault((place.cluster, place.zone if select.same_zone else ""), []).append(place)
    return groups.values()


def _format_excluded(select: Select, available: Sequence[EnvironmentInfo]) -> str:
    """Return how many environments each condition alone excludes."""
    alone = {
        "gpusPerNode": replace(_NO_CONDITIONS, gpus_per_node=select.gpus_per_node),
        "gpuTypes": replace(_NO_CONDITIONS, gpu_types=select.gpu_types),
        "zones": replace(_NO_CONDITIONS, zones=select.zones),
        "labels": replace(_NO_CONDITIONS, labels=select.labels),
        "exclude": replace(_NO_CONDITIONS, exclude=select.exclude),
    }
    counts = {name: sum(not matches_request(one, place) for place in available) for name, one in alone.items()}
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def explain_choice(
    task: WaitingTask, chosen: Sequence[EnvironmentInfo], free: Iterable[EnvironmentInfo]
) -> list[Problem]:
    """Return why these environments were chosen of all that were free."""
    select = task.select
    if select is None or not chosen:
        return []
    stock, wish = EnvironmentPool(), build_request(task)
    usable = [place for place in free if place.usable and is_open_to(task.project, task.cluster, place)]
    no_gpus = [place for place in usable if not place.gpus]
    stock.fill(usable)
    fit = [place for lot in exclude_environments(stock.list_matching(wish), select.exclude) for place in lot.places]
    ids = {place.id for place in chosen}
    others = [place for place in fit if place.id not in ids]
    zones = sorted({place.zone_name or place.zone for place in chosen})
    found = []
    if len({place.zone for place in fit}) > len(zones):
        params = {"zones": ", ".join(zones), "number": len(zones)}
        found.append(Problem(SELECT_FIELD, "CHOSEN_FEWEST_ZONES", params))
    if select.total_gpus is not None or select.gpus_per_node is not None:
        gpus = sum(place.gpus for place in chosen)
        over = gpus - (select.total_gpus or len(chosen) * (select.gpus_per_node or 0))
        found.append(Problem(SELECT_FIELD, "CHOSEN_BEST_FIT", {"gpus": gpus, "over": over, "nodes": len(chosen)}))
    if select.on_gpus and (
        without_gpu := sum(matches_request(replace(select, on_gpus=False), place) for place in no_gpus)
    ):
        found.append(Problem(SELECT_FIELD, "CHOSEN_ON_GPUS", {"count": without_gpu}))
    if avoided := sum(place.health > max(one.health for one in chosen) for place in others):
        found.append(Problem(SELECT_FIELD, "CHOSEN_HEALTHY", {"avoided": avoided}))
    if len(chosen) > 1 and chosen[0].link and len({place.link for place in chosen}) == 1:
        found.append(Problem(SELECT_FIELD, "CHOSEN_FAST_LINK", {"nodes": len(chosen)}))
    if len(chosen) > 1:
        ranks = min(chosen[0].processes, select.gpus_per_node or chosen[0].processes)
        found.append(Problem(SELECT_FIELD, "CHOSEN_MASTER", {"environment": chosen[0].name, "ranks": ranks}))
    return found
