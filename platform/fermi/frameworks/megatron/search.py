"""Searches the fastest split that fits: memory and time of every split that no rule forbids are computed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from fermi.frameworks import parallelism
from fermi.frameworks.megatron import cost, memory
from fermi.frameworks.megatron.request import MegatronRequest, UserChoices
from fermi.frameworks.megatron.split import Recompute, Split, build_given_split, uses_sequence_parallel

MAX_MICRO_BATCH = 32
"""The largest micro-batch tried: matrices are large enough long before."""

MAX_VIRTUAL_STAGES = 8
"""The most virtual stages per rank tried: each is another message per micro-batch."""

MAX_GPUS_TRIED = 1 << 14
"""GPUs up to which a number is looked for that would fit where nothing does."""

EQUAL_TIME_FACTOR = 1.01
"""The cost model is not exact to one percent: within it the simpler split is chosen."""

RECOMPUTE_LEVELS: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`fits`: how many splits fit. With none, `split` is the one that takes least, and `would_fit` the number of such
    GPUs that would do (0: not up to MAX_GPUS_TRIED)."""

    split: Split
    fits: int
    would_fit: int = 0


@lru_cache(maxsize=64)
def find_best_split(request: MegatronRequest) -> SearchResult | None:
    """Return the best split, or None where what is given leaves no valid one."""
    if request.model.hidden % request.model.heads:
        return None
    room, smallest = memory.compute_usable_bytes(request), None
    fitting: list[tuple[float, Split]] = []
    for one in list_meshes(request):
        for micro in _list_micro_batches(request, one):
            tried, before = 0, len(fitting)
            for group in _group_splits(request, replace(one, micro=micro)):
                for split in group:
                    tried += 1
                    total = memory.estimate_memory(request, split).total
                    smallest = min(smallest or (total, split), (total, split), key=lambda found: found[0])
                    if total <= room:
                        fitting.append((cost.estimate_step_seconds(request, split), split))
                        break  # what recomputes more fits as well, and is slower
            if tried and len(fitting) == before:
                break  # larger micro-batches take more
    if fitting:
        return SearchResult(choose_fastest(fitting), len(fitting))
    return SearchResult(smallest[1], 0, _count_gpus_needed(request)) if smallest else None


def choose_split(request: MegatronRequest) -> Split:
    """Return the split that will run: the user's degrees, and the proposal's where the user gave none."""
    found = find_best_split(request)
    return found.split if found else build_given_split(request)


def choose_fastest(timed: list[tuple[float, Split]]) -> Split:
    """Return the fastest of (seconds, split); of nearly equal ones the simplest."""
    limit = min(seconds for seconds, _ in timed) * EQUAL_TIME_FACTOR

    def plainness(one: tuple[float, Split]) -> tuple[float, ...]:
        seconds, split = one
        return (split.virtual, split.context, split.expert, seconds, split.tensor, split.pipeline, split.micro)

    return min((one for one in timed if one[0] <= limit), key=plainness)[1]


def list_meshes(request: MegatronRequest) -> Iterator[Split]:
    """Yield every valid (tensor, pipeline, context), each with the simplest rest; its micro-batch need not divide
    yet."""
    given, model, world = request.given, request.model, request.cluster.world
    for tensor in _list_choices(given.tensor, math.gcd(*request.cluster.nodes)):
        if model.heads % tensor:
            continue
        for pipeline in _list_choices(given.pipeline, model.layers):
            if world % (tensor * pipeline):
                continue
            for context in _list_contexts(request, tensor, pipeline):
                data = world // (tensor * pipeline * context)
                sequence = uses_sequence_parallel(request, tensor, context)
                if given.data not in (None, data) or given.global_batch % data:
                    continue
                if sequence and (tensor == 1 or model.sequence % (tensor * context)):
                    continue
                if model.experts and tensor > 1 and not sequence:
                    continue
                for zero in _list_zero_stages(request, pipeline):
                    yield Split(tensor, pipeline, context, 1, 1, data, given.global_batch, 1, "none", sequence,
                                given.distributed_optimizer, zero)  # fmt: skip


def _list_zero_stages(request: MegatronRequest, pipeline: int) -> list[int | None]:
    """Return the ZeRO stages; with a pipeline the optimizer alone can be split (runtime/pipe/engine.py:73)."""
    given = request.given
    if not given.deepspeed:
        return [None]
    possible = (0, 1) if pipeline > 1 else (0, 1, 2, 3)
    if given.zero is None:
        return list(possible[1:])
    return [given.zero] if given.zero in possible else []


def _list_contexts(request: MegatronRequest, tensor: int, pipeline: int) -> list[int]:
    """Powers of two, as sequences are; none for the trainer, which cannot, nor beside other splits of DeepSpeed's."""
    given, ranks = request.given, request.cluster.world // (tensor * pipeline)
    if given.deepspeed:
        alone = tensor * pipeline == 1  # and it splits the heads, too
        return _list_choices(
            given.context, math.gcd(ranks, request.model.heads, request.model.sequence) if alone else 1
        )
    if given.trainer:
        return _list_choices(given.context, 1)
    tried = (
        [c for c in _list_divisors(ranks) if c & (c - 1) == 0]
        if given.context is None
        else _list_choices(given.context, ranks)
    )
    return [c for c in tried if c == 1 or request.model.sequence % (2 * c) == 0]


def _list_micro_batches(request: MegatronRequest, mesh: Split) -> list[int]:
    """Return the micro-batches, ascending."""
    share = mesh.global_batch // mesh.data
    return _list_choices(request.given.micro, share, MAX_MICRO_BATCH if request.given.micro is None else None)


def _group_splits(request: MegatronRequest, split: Split) -> Iterator[list[Split]]:
    """`split` with every expert and virtual degree; those that differ in recomputation only are together, the least of
    it first."""
    given, model = request.given, request.model
    interleaved = split.pipeline > 1 and split.micro_batches % split.pipeline == 0
    layers = model.layers // split.pipeline
    for expert in _list_choices(given.expert, max(model.experts, 1)):
        if split.data * split.context % expert or (expert > 1 and not model.experts):
            continue
        for virtual in _list_choices(given.virtual, layers if interleaved else 1, MAX_VIRTUAL_STAGES):
            yield [
                replace(split, expert=expert, virtual=virtual, recompute=recompute)
                for recompute in RECOMPUTE_LEVELS
                if given.recompute in (None, recompute)
            ]


def _list_choices(chosen: int | None, number: int, max_value: int | None = None) -> list[int]:
    """The divisors of `number` up to `most`; what is given alone, if it is one."""
    if chosen is not None:
        return [chosen] if number % chosen == 0 else []
    return _list_divisors(number, max_value)


def find_nearest_strategies(
    request: MegatronRequest, max_count: int = parallelism.MAX_PROPOSED
) -> list[parallelism.Strategy]:
    """Return the valid strategies that differ least from what was asked for."""
    given = request.given
    named = (("tensorParallel", given.tensor), ("pipelineParallel", given.pipeline), ("contextParallel", given.context),
             ("dataParallel", given.data))  # fmt: skip
    asked = {name: degree for name, degree in named if degree}
    valid = list_meshes(replace(request, given=_open_all_degrees(given, given.global_batch, zero=1)))
    return parallelism.find_nearest(asked, (mesh.strategy for mesh in valid), max_count)


def _count_gpus_needed(request: MegatronRequest) -> int:
    """Return the number of GPUs, in multiples of these nodes, on which the split that takes least fits, whatever the
    user asked for."""
    world, room, times = request.cluster.world, memory.compute_usable_bytes(request), 2
    while world * times <= MAX_GPUS_TRIED:
        nodes, ranks = request.cluster.nodes * times, world * times
        more = replace(request.cluster, nodes=nodes, zones=(ranks,))
        wish = MegatronRequest(request.model, more, _open_all_degrees(request.given, ranks))
        for mesh in list_meshes(wish):
            split = replace(mesh, recompute="full", global_batch=mesh.data * mesh.pipeline, distributed_optimizer=True)
            if memory.estimate_memory(wish, split).total <= room:
                return ranks
        times *= 2
    return 0


def _open_all_degrees(choices: UserChoices, global_batch: int, zero: int | None = None) -> UserChoices:
    """Every degree left open."""
    return UserChoices(global_batch, trainer=choices.trainer, deepspeed=choices.deepspeed, zero=zero)


@lru_cache(maxsize=1024)
def _list_divisors(number: int, most: int | None = None) -> list[int]:
    """Return the divisors, ascending; the list must not be changed by the caller."""
    most = number if most is None else min(most, number)
    return [n for n in range(1, most + 1) if number % n == 0]
