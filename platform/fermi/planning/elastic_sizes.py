"""Chooses on how many nodes an elastic job runs, and on which: all that were asked for, or those of them that are
available.

4 nodes ─▶ one is lost ─▶ 3 nodes, or 2 where 3 cannot keep the global batch ─▶ it is back ─▶ 4 nodes
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from fermi.jobs import elastic
from fermi.jobs.elastic import divide_job_batch
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import Elastic, JobSpec, Node, Problem
from fermi.planning import plugins
from fermi.schema import suggestions

FIELD = "distributedConfig.elastic"


def set_full_size(spec: JobSpec) -> JobSpec:
    """Return the job at the size asked for, on all chosen nodes, with the batch that every other size must keep."""
    asked, framework = spec.elastic, plugins.get_framework(spec.framework)
    if asked is None:
        return spec
    begun = elastic.restore_full_size(replace(spec, elastic=replace(asked, nodes=spec.nodes, master=spec.master)))
    assert begun.elastic is not None
    rows, steps = framework.batch(begun) or (0, 0)
    world, even = begun.world_size, framework.info.elastic != "uneven"
    known = replace(begun.elastic, world_size=world, batch=rows * steps * world, rows=rows, even=even)
    return replace(begun, elastic=known)


def list_resized_jobs(spec: JobSpec, usable: Collection[str]) -> Iterator[JobSpec]:
    """Yield the job as it may run on the usable ones of its nodes, the largest first. Nodes that it runs on now stay;
    the master stays, too, or becomes the master again, or the first node in the order of ranks replaces it."""
    asked = spec.elastic
    assert asked is not None
    present = {node.id for node in spec.nodes}
    there = [node for node in asked.nodes if node.id in usable]
    there.sort(key=lambda node: (node.id != asked.master, node.id not in present, node.name, node.id))
    for count in range(min(asked.max_nodes, len(there)), asked.min_nodes - 1, -1):
        if found := _resize(spec, there[:count]):
            yield found


def _resize(spec: JobSpec, nodes: list[Node]) -> JobSpec | None:
    asked = spec.elastic
    assert asked is not None
    stays = any(node.id == asked.master for node in nodes)
    master = asked.master if stays else place_nodes(nodes, "")[0].node.id
    found = replace(spec, nodes=tuple(nodes), master=master)
    if asked.batch and divide_job_batch(found) is None:
        return None
    return None if plugins.get_framework(spec.framework).problems(found) else found


def list_sizes(spec: JobSpec) -> list[int]:
    """Return the numbers of nodes on which the job can run, fewest first, on the first of the chosen nodes."""
    asked = spec.elastic
    if asked is None or not asked.world_size:
        return []
    return sorted(len(found.nodes) for found in list_resized_jobs(spec, {node.id for node in asked.nodes}))


def find_problems(spec: JobSpec) -> list[Problem]:
    """Return what is wrong with the elastic range of a job that is at full size and breaks no other rule of its
    framework."""
    asked = spec.elastic
    if asked is None:
        return []
    found, chosen = [], len(asked.nodes)
    params: dict[str, Any]
    if asked.max_nodes > chosen:
        params = {"found": asked.max_nodes, "high": chosen, "nearest": chosen}
        found.append(Problem(f"{FIELD}.maxNodes", "ELASTIC_MAX_TOO_LARGE", params))
    elif asked.min_nodes > asked.max_nodes:
        params = {"found": asked.min_nodes, "high": asked.max_nodes, "nearest": asked.max_nodes}
        found.append(Problem(f"{FIELD}.minNodes", "ELASTIC_MIN_ABOVE_MAX", params))
    framework = plugins.get_framework(spec.framework)
    if not framework.info.elastic:
        others = ", ".join(one.info.label for one in plugins.list_frameworks() if one.info.elastic)
        params = {"framework": framework.info.label, "allowed": others}
        found.append(Problem(FIELD, "ELASTIC_NOT_OFFERED", params))
    split = [f"{name}={size}" for name, size in spec.strategy.items() if name != "dataParallel" and size != 1]
    if split and framework.info.splits_model:  # the others say that they do not
        found.append(Problem(FIELD, "ELASTIC_SPLIT", {"found": ", ".join(split)}))
    if spec.options.get("batchShare") == "bySpeed":
        found.append(Problem("distributedConfig.options.batchShare", "ELASTIC_SHARES_BY_SPEED", {"nearest": "equal"}))
    if found or framework.problems(spec):
        return found
    if asked.min_nodes < asked.max_nodes and len(list_sizes(spec)) < 2:
        params = {
            "batch": asked.batch,
            "low": asked.min_nodes,
            "high": asked.max_nodes,
            "nearest": _suggest_batch(asked),
        }
        found.append(Problem(f"{FIELD}.minNodes", "ELASTIC_BATCH_INDIVISIBLE", params))
    return found


def find_warnings(spec: JobSpec) -> list[Problem]:
    """Return on how many nodes a valid job will not run, and that the script must keep the batch where the platform
    does not know it."""
    asked = spec.elastic
    if asked is None:
        return []
    found, can = [], list_sizes(spec)
    if missing := sorted({*range(asked.min_nodes, asked.max_nodes + 1)} - {*can}):
        params: dict[str, Any] = {
            "sizes": ", ".join(map(str, can)),
            "missing": ", ".join(map(str, missing)),
            "batch": asked.batch,
            "nearest": _suggest_batch(asked),
        }
        found.append(Problem(FIELD, "ELASTIC_SIZES", params))
    if not asked.batch and spec.entrypoint:
        found.append(Problem(FIELD, "ELASTIC_BATCH_UNKNOWN", {"worldSize": asked.world_size}))
    return found


def _suggest_batch(elastic: Elastic) -> int | None:
    """Return the global batch nearest to the one asked for that can be divided evenly at each size."""
    nodes = [at.node for at in place_nodes(elastic.nodes, elastic.master)]
    counts = range(elastic.min_nodes, elastic.max_nodes + 1)
    worlds = [sum(node.processes for node in nodes[:count]) for count in counts]
    return suggestions.suggest_multiples(elastic.batch, math.lcm(*worlds))[0] if elastic.batch and worlds else None
