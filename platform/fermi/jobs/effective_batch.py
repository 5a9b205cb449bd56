"""Computes the effective batch over all ranks, and the learning rate scaled by it.

    effective batch = batch per rank × data-parallel ranks × accumulation steps

Ranks that split one model among them read the same samples, so they count once.
"""

from dataclasses import dataclass
from typing import Any

from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class EffectiveBatch:
    """The effective batch, in samples. `learning_rate`: as given, None where only the script knows it. `own_script`:
    the job passes these values to a user's own script; whether the script uses them is not known."""

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
        return (
            None
            if self.learning_rate is None
            else self.learning_rate * recipes.LEARNING_RATE_SCALES[self.scaling](self.ranks)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the batch in the API's spelling."""
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


def build_effective_batch(
    spec: JobSpec, per_rank: int, ranks: int, accumulation: int, **learning_rate: Any
) -> EffectiveBatch:
    """Return the effective batch, with the learning rate of the hyperparameters unless another one is given."""
    own = spec.entrypoint is not None
    rate = recipes.read_hyperparameter(spec, "learningRate", None if own else recipes.DEFAULT_LEARNING_RATE)
    scaling = recipes.read_hyperparameter(spec, "learningRateScaling", "none")
    return EffectiveBatch(**{
        "per_rank": per_rank, "ranks": ranks, "accumulation": accumulation, "learning_rate": rate, "scaling": scaling,
        "own_script": own, **learning_rate,
    })  # fmt: skip
