"""What an optimizer step comes to over all ranks: the effective batch, and the learning rate scaled by it.

    effective batch = batch per rank × data-parallel ranks × accumulation steps

Ranks that split one model among them read the same samples, so they count once.
"""

from dataclasses import dataclass
from typing import Any

from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Batch:
    """In samples. `learning_rate` is as given, or None where only the script knows it. `own_script`: these are what the
    job tells a script of the user's own; whether the script does so nobody can see."""

    per_rank: int
    ranks: int
    accumulation: int
    learning_rate: float | None = None
    scaling: str = "none"
    own_script: bool = False

    @property
    def effective(self) -> int:
        return self.per_rank * self.ranks * self.accumulation

    @property
    def scaled_learning_rate(self) -> float | None:
        return None if self.learning_rate is None else self.learning_rate * recipes.SCALES[self.scaling](self.ranks)

    def to_json(self) -> dict[str, Any]:
        """In the API's spelling."""
        return {
            "perRank": self.per_rank,
            "dataParallel": self.ranks,
            "accumulation": self.accumulation,
            "effective": self.effective,
            "learningRate": self.learning_rate,
            "learningRateScaling": self.scaling,
            "scaledLearningRate": self.scaled_learning_rate,
            "ownScript": self.own_script,
        }


def of(spec: JobSpec, per_rank: int, ranks: int, accumulation: int, **learning_rate: Any) -> Batch:
    """With the learning rate of the hyperparameters, unless another is given."""
    own = spec.entrypoint is not None
    rate = recipes.given(spec, "learningRate", None if own else recipes.DEFAULT_LEARNING_RATE)
    scaling = recipes.given(spec, "learningRateScaling", "none")
    return Batch(**{
        "per_rank": per_rank, "ranks": ranks, "accumulation": accumulation, "learning_rate": rate, "scaling": scaling,
        "own_script": own, **learning_rate,
    })  # fmt: skip
