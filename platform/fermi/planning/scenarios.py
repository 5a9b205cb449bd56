"""The requirement document's table of scenarios (004): number of nodes and GPUs, and the frameworks for them."""

from collections.abc import Sequence
from dataclasses import dataclass

SINGLE = "single"
"""One machine, with any framework."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A row of the table. `code` has a text: its name, and as the hint what is special about it. Bounds are inclusive;
    None = no bound."""

    code: str
    nodes: tuple[int, int | None]
    gpus: tuple[int, int | None]
    frameworks: Sequence[str]

    def fits(self, nodes: int, gpus: int) -> bool:
        return _within(nodes, self.nodes) and _within(gpus, self.gpus)


SCENES = (
    Scene("SCENE_SMALL", (1, 1), (1, 2), (SINGLE,)),
    Scene("SCENE_MEDIUM", (1, 1), (4, 8), (SINGLE,)),
    Scene("SCENE_LARGE", (2, 4), (8, 32), ("pytorch-ddp",)),
    Scene("SCENE_HUGE", (4, None), (32, None), ("deepspeed", "pytorch-fsdp")),
    Scene("SCENE_GPT", (8, None), (64, None), ("megatron-lm",)),
)


def fitting(nodes: int, gpus: int) -> list[Scene]:
    """Return the scenarios that fit; the last is the most specific one. Between the rows, and beyond the table, the
    nearest by nodes."""
    if found := [scene for scene in SCENES if scene.fits(nodes, gpus)]:
        return found
    rows = [scene for scene in SCENES if _within(nodes, scene.nodes)]
    return [min(rows, key=lambda scene: _apart(gpus, scene.gpus))]


def _within(number: int, bounds: tuple[int, int | None]) -> bool:
    return _apart(number, bounds) == 0


def _apart(number: int, bounds: tuple[int, int | None]) -> int:
    low, high = bounds
    return max(low - number, number - high if high is not None else 0, 0)
