"""Of how many steps and epochs a training is, as its arguments and parameters say. Pure.

Only names that mean this in all scripts that were looked at are known: `num_steps`, say, is the length of a rollout in
CleanRL. They come from transformers `training_args.py`, diffusers' and Accelerate's examples, nanoGPT, minGPT,
Megatron-LM `arguments.py`, fairseq `options.py`, Lightning, CleanRL, timm `train.py` and pytorch/examples.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

STEP_NAMES = frozenset(
    (
        "max_steps", "max_iters", "max_iter", "max_iterations", "max_train_steps", "max_train_iters", "num_train_steps",
        "num_training_steps", "num_train_iterations", "num_iterations", "train_steps", "train_iters", "training_steps",
        "total_steps", "total_iters", "total_iterations", "max_update", "max_updates",
    )
)  # fmt: skip
TIMESTEP_NAMES = frozenset(("total_timesteps", "max_timesteps"))
"""Steps of an environment in reinforcement learning, which are not those of an optimizer."""
EPOCH_NAMES = frozenset(("epochs", "num_epochs", "max_epochs", "max_epoch", "n_epochs", "num_train_epochs"))
_OPTION = re.compile(r"(?:--?|\+{1,2})?([A-Za-z][\w.-]{0,80})(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TrainingLength:
    """Of how many `steps` and `epochs` a training is; 0: not known. `timesteps`: of an environment."""

    steps: int = 0
    epochs: int = 0
    timesteps: int = 0

    @property
    def printed_steps(self) -> int:
        """Of how many steps a counter is that the script prints or logs."""
        return self.steps or self.timesteps

    def merge(self, other: "TrainingLength") -> "TrainingLength":
        """Return this length; what it does not know, as the other one says."""
        return TrainingLength(self.steps or other.steps, self.epochs or other.epochs, self.timesteps or other.timesteps)


UNKNOWN = TrainingLength()


def find_in_arguments(words: Iterable[str]) -> TrainingLength:
    """Return what the words of a command line say: `--max_steps 200`, `--epochs=3`, `trainer.max_epochs=3`. A word may
    be a command line itself, as after `bash -c`."""
    found: dict[str, str] = {}
    name = ""
    for word in (piece for whole in words for piece in (whole.split() if " " in whole else [whole])):
        option = _OPTION.fullmatch(word)
        if name and not (option and word.startswith("-")):
            found[name] = word
        name = ""
        if option and option[2] is not None:
            found[option[1]] = option[2]
        elif option and word.startswith("--"):
            name = option[1]
    return find_in_parameters(found)


def find_in_parameters(parameters: Mapping[str, object]) -> TrainingLength:
    """Return what parameters say, by names such as `max_steps`, `trainer.max_iters` and `num-epochs`. Of several that
    differ none counts."""
    kinds = (STEP_NAMES, EPOCH_NAMES, TIMESTEP_NAMES)
    counts: tuple[set[int], ...] = (set(), set(), set())
    for name, value in parameters.items():
        last = name.rpartition(".")[2].replace("-", "_").lower()
        for names, found in zip(kinds, counts, strict=True):
            if last in names and (count := _parse_count(value)):
                found.add(count)
    return TrainingLength(*(next(iter(found)) if len(found) == 1 else 0 for found in counts))


def _parse_count(value: object) -> int:
    """Return a whole number above zero; 0 for anything else: -1 stands for no limit, 2.5 epochs for no whole ones."""
    try:
        number = float(str(value))
    except ValueError:
        return 0
    return int(number) if math.isfinite(number) and 0 < number < 2**53 and number == int(number) else 0
