"""Searches the fastest split that fits: memory and time of every split that no rule forbids are computed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from fermi.frameworks import parallelism
from fermi.frameworks.megatron import cost, memory
from fermi.frameworks.megatron.request import Given, Request
from fermi.frameworks.megatron.split import Recompute, Split, as_given, splits_sequence

MOST_SAMPLES = 32
"""The largest micro-batch tried: matrices are large enough long before."""

MOST_CHUNKS = 8
"""The most virtual stages per rank tried: each is another message per micro-batch."""

MOST_GPUS = 1 << 14
"""GPUs up to which a number is looked for that would fit where nothing does."""

AS_GOOD = 1.01
"""The cost model is not exact to one percent: within it the simpler split is chosen."""

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Found:
    """`fits`: how many splits fit. With none, `split` is the one that takes least, and `would_fit` the number of such
    GPUs that would do (0: not up to MAX_GPUS_TRIED)."""

    split: Split
    fits: int
    would_fit: int = 0


@lru_cache(maxsize=64)
def best(request: Request) -> Found | None:
    """Return the best split, or None where what is given leaves no valid one."""
    if request.model.hidden % request.model.heads:
        return None
    room, smallest = memory.usable(request), None
    fitting: list[tuple[float, Split]] = []
    for one in meshes(request):
        for micro in _micros(request, one):
            tried, before = 0, len(fitting)
            for group in _groups(request, replace(one, micro=micro)):
                for split in group:
                    tried += 1
                    total = memory.estimate(request, split).total
                    smallest = min(smallest or (total, split), (total, split), key=lambda found: found[0])
                    if total <= room:
                        fitting.append((cost.seconds(request, split), split))
                        break  # what recomputes more fits as well, and is slower
            if tried and len(fitting) == before:
                break  # larger micro-batches take more
    if fitting:
        return Found(fastest(fitting), len(fitting))
    return Found(smallest[1], 0, _would_fit(request)) if smallest else None


def settled(request: Request) -> Split:
    """Return the split that will run: the user's degrees, and the proposal's where the user gave none."""
    found = best(request)
    return found.split if found else as_given(request)


def fastest(timed: list[tuple[float, Split]]) -> Split:
    """Return the fastest of (seconds, split); of nearly equal ones the simplest."""
    limit = min(seconds for seconds, _ in timed) * AS_GOOD

    def plainness(one: tuple[float, Split]) -> tuple[float, ...]:
        seconds, split = one
        return (split.virtual, split.context, split.expert, seconds, split.tensor, split.pipeline, split.micro)

    return min((one for one in timed if one[0] <= limit), key=plainness)[1]


def meshes(request: Request) -> Iterator[Split]:
    """Yield every valid (tensor, pipeline, context), each with the simplest rest; its micro-batch need not divide
    yet."""
    given, model, world = request.given, request.model, request.cluster.world
    for tensor in _open(given.tensor, math.gcd(*request.cluster.nodes)):
        if model.heads % tensor:
            continue
        for pipeline in _open(given.pipeline, model.layers):
            if world % (tensor * pipeline):
                continue
            for context in _contexts(request, tensor, pipeline):
                data = world // (tensor * pipeline * context)
                sequence = splits_sequence(request, tensor, context)
                if given.data not in (None, data) or given.global_batch % data:
                    continue
                if sequence and (tensor == 1 or model.sequence % (tensor * context)):
                    continue
                if model.experts and tensor > 1 and not sequence:
                    continue
                for zero in _stages(request, pipeline):
                    yield Split(tensor, pipeline, context, 1, 1, data, given.global_batch, 1, "none", sequence,
                                given.distributed_optimizer, zero)  # fmt: skip


def _stages(request: Request, pipeline: int) -> list[int | None]:
    """Return the ZeRO stages; with a pipeline the optimizer alone can be split (runtime/pipe/engine.py:73)."""
    given = request.given
    if not given.deepspeed:
        return [None]
    possible = (0, 1) if pipeline > 1 else (0, 1, 2, 3)
    if given.zero is None:
        return list(possible[1:])
    return [given.zero] if given.zero in possible else []


def _contexts(request: Request, tensor: int, pipeline: int) -> list[int]:
    """Powers of two, as sequences are; none for the trainer, which cannot, nor beside other splits of DeepSpeed's."""
    given, ranks = request.given, request.cluster.world // (tensor * pipeline)
    if given.deepspeed:
        alone = tensor * pipeline == 1  # and it splits the heads, too
        return _open(given.context, math.gcd(ranks, request.model.heads, request.model.sequence) if alone else 1)
    if given.trainer:
        return _open(given.context, 1)
    tried = [c for c in _divisors(ranks) if c & (c - 1) == 0] if given.context is None else _open(given.context, ranks)
    return [c for c in tried if c == 1 or request.model.sequence % (2 * c) == 0]


def _micros(request: Request, mesh: Split) -> list[int]:
    """Return the micro-batches, ascending."""
    share = mesh.global_batch // mesh.data
    return _open(request.given.micro, share, MOST_SAMPLES if request.given.micro is None else None)


def _groups(request: Request, split: Split) -> Iterator[list[Split]]:
    """`split` with every expert and virtual degree; those that differ in recomputation only are together, the least of
    it first."""
    given, model = request.given, request.model
    interleaved = split.pipeline > 1 and split.micro_batches % split.pipeline == 0
    layers = model.layers // split.pipeline
    for expert in _open(given.expert, max(model.experts, 1)):
        if split.data * split.context % expert or (expert > 1 and not model.experts):
            continue
        for virtual in _open(given.virtual, layers if interleaved else 1, MOST_CHUNKS):
            yield [
                replace(split, expert=expert, virtual=virtual, recompute=recompute)
                for recompute in RECOMPUTE
                if given.recompute in (None, recompute)
            ]


def _open(given: int | None, number: int, most: int | None = None) -> list[int]:
    """The divisors of `number` up to `most`; what is given alone, if it is one."""
    if given is not None:
        return [given] if number % given == 0 else []
    return _divisors(number, most)


def nearest(request: Request, most: int = parallelism.MOST) -> list[parallelism.Strategy]:
    """Return the valid strategies that differ least from what was asked for."""
    given = request.given
    named = (("tensorParallel", given.tensor), ("pipelineParallel", given.pipeline), ("contextParallel", given.context),
             ("dataParallel", given.data))  # fmt: skip
    asked = {name: degree for name, degree in named if degree}
    valid = meshes(replace(request, given=_open_to_all(given, given.global_batch, zero=1)))
    return parallelism.nearest(asked, (mesh.strategy for mesh in valid), most)


def _would_fit(request: Request) -> int:
    """Return the number of GPUs, in multiples of these nodes, on which the split that takes least fits, whatever the
    user asked for."""
    world, room, times = request.cluster.world, memory.usable(request), 2
    while world * times <= MOST_GPUS:
        nodes, ranks = request.cluster.nodes * times, world * times
        more = replace(request.cluster, nodes=nodes, zones=(ranks,))
        wish = Request(request.model, more, _open_to_all(request.given, ranks))
        for mesh in meshes(wish):
            split = replace(mesh, recompute="full", global_batch=mesh.data * mesh.pipeline, distributed_optimizer=True)
            if memory.estimate(wish, split).total <= room:
                return ranks
        times *= 2
    return 0


def _open_to_all(given: Given, global_batch: int, zero: int | None = None) -> Given:
    """Every degree left open."""
    return Given(global_batch, trainer=given.trainer, deepspeed=given.deepspeed, zero=zero)


@lru_cache(maxsize=1024)
def _divisors(number: int, most: int | None = None) -> list[int]:
    """Return the divisors, ascending; the list must not be changed by the caller."""
    most = number if most is None else min(most, number)
    return [n for n in range(1, most + 1) if number % n == 0]
