"""The requirement document's table of scenarios (004): number of nodes and GPUs, and the frameworks for them."""

from collections.abc import Sequence
from dataclasses import dataclass

SINGLE = "single"
"""One machine, with any framework."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A row of the table. `code` has a text: its name, and as the hint what is special about it. Bounds are inclusive;
    None = no bound."""

    code: str
    nodes: tuple[int, int | None]
    gpus: tuple[int, int | None]
    frameworks: Sequence[str]

    def fits(self, nodes: int, gpus: int) -> bool:
        return _is_within(nodes, self.nodes) and _is_within(gpus, self.gpus)


SCENARIOS = (
    Scenario("SCENE_SMALL", (1, 1), (1, 2), (SINGLE,)),
    Scenario("SCENE_MEDIUM", (1, 1), (4, 8), (SINGLE,)),
    Scenario("SCENE_LARGE", (2, 4), (8, 32), ("pytorch-ddp",)),
    Scenario("SCENE_HUGE", (4, None), (32, None), ("deepspeed", "pytorch-fsdp")),
    Scenario("SCENE_GPT", (8, None), (64, None), ("megatron-lm",)),
)


def list_fitting_scenarios(nodes: int, gpus: int) -> list[Scenario]:
    """Return the scenarios that fit; the last is the most specific one. Between the rows, and beyond the table, the
    nearest by nodes."""
    if found := [scene for scene in SCENARIOS if scene.fits(nodes, gpus)]:
        return found
    rows = [scene for scene in SCENARIOS if _is_within(nodes, scene.nodes)]
    return [min(rows, key=lambda scene: _compute_distance(gpus, scene.gpus))]


def _is_within(number: int, bounds: tuple[int, int | None]) -> bool:
    return _compute_distance(number, bounds) == 0


def _compute_distance(number: int, bounds: tuple[int, int | None]) -> int:
    low, high = bounds
    return max(low - number, number - high if high is not None else 0, 0)
