"""Reference recipes: the hyperparameters that the API offers, and the trainer arguments that these become."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fermi.jobs.spec import JobSpec, Late, Problem, Value
from fermi.messages import NestedText
from fermi.schema import suggestions, values

_TYPE_NAMES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


@dataclass(frozen=True, slots=True)
class HyperparameterRule:
    """A rule for one hyperparameter. `flag`: of the trainer; `low`, `high`: inclusive bounds; `choices`: words."""

    flag: str
    kind: type = int
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def allowed(self) -> NestedText:
        """Return the description of valid values."""
        if self.choices:
            return values.describe_choices(self.choices)
        low, high = (
            int(bound) if bound is not None and bound == int(bound) else bound for bound in (self.low, self.high)
        )
        return values.describe_type({"type": _TYPE_NAMES[self.kind], "minimum": low, "maximum": high})

    def nearest(self, value: Any) -> Any:
        """Return the nearest valid value, or None."""
        if self.choices:
            return suggestions.suggest_name(value, self.choices) or self.choices[0]
        if self.kind is bool:
            return suggestions.suggest_boolean(value)
        if self.kind is str:
            return None
        found = suggestions.suggest_number(value, self.low, self.high, integer=self.kind is int)
        return self.low if found is None else found

    def accepts(self, value: Any) -> bool:
        """Return whether the value is valid. Infinity, NaN and integers beyond floats are not."""
        if self.choices:
            return value in self.choices
        if self.kind is bool or isinstance(value, bool):
            return self.kind is bool and isinstance(value, bool)
        if not isinstance(value, int if self.kind is int else (int, float)):
            return False
        if self.kind is float and not abs(value) <= sys.float_info.max:  # Infinity, NaN, and integers beyond
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


GPT: dict[str, HyperparameterRule] = {
    "batchSize": HyperparameterRule("batch_size", low=1, high=65536),
    "gradientAccumulationSteps": HyperparameterRule("gradient_accumulation_steps", low=1, high=65536),
    "dtype": HyperparameterRule("dtype", str, choices=("auto", "float32", "float16", "bfloat16")),
    "totalSteps": HyperparameterRule("total_steps", low=1),
    "learningRate": HyperparameterRule("learning_rate", float, low=0, high=1e6),
    "minLearningRate": HyperparameterRule("min_lr", float, low=0),
    "learningRateScaling": HyperparameterRule("lr_scaling", str, choices=("none", "linear", "sqrt")),
    "warmupSteps": HyperparameterRule("warmup_steps", low=0),
    "weightDecay": HyperparameterRule("weight_decay", float, low=0),
    "gradientClipping": HyperparameterRule("grad_clip", float, low=0),
    "seed": HyperparameterRule("seed", low=0),
    "evalEvery": HyperparameterRule("eval_every", low=0),
    "evalBatches": HyperparameterRule("eval_batches", low=1),
    "logEvery": HyperparameterRule("log_every", low=1),
    "checkpointEvery": HyperparameterRule("checkpoint_every", low=0),
    "keepCheckpoints": HyperparameterRule("keep_checkpoints", low=1),
    "stepDelay": HyperparameterRule("step_delay", float, low=0, high=60),
    "layers": HyperparameterRule("n_layer", low=1, high=1000),
    "heads": HyperparameterRule("n_head", low=1, high=1000),
    "hiddenSize": HyperparameterRule("n_embd", low=1),
    "sequenceLength": HyperparameterRule("block_size", low=1),
    "vocabSize": HyperparameterRule("vocab_size", low=1, high=65536),
    "useWandb": HyperparameterRule("use_wandb", bool),
    "wandbProject": HyperparameterRule("wandb_project", str),
    "wandbRunName": HyperparameterRule("wandb_run_name", str),
    "useTensorboard": HyperparameterRule("use_tensorboard", bool),
    "tensorboardDir": HyperparameterRule("tensorboard_dir", str),
    "numWorkers": HyperparameterRule("num_workers", low=0, high=64),
    "preload": HyperparameterRule("preload", bool),
}

LEARNING_RATE_SCALES: dict[str, Callable[[int], float]] = {"none": lambda _: 1, "linear": float, "sqrt": math.sqrt}
"""Factor of the learning rate by the number of processes."""

DEFAULT_LEARNING_RATE = 3e-3
DEFAULT_BATCH_SIZE = 8  # the trainers', as is what follows
DEFAULT_SEQUENCE_LENGTH = 64
_DEFAULT_SIZES = {"layers": 2, "hiddenSize": 64, "sequenceLength": DEFAULT_SEQUENCE_LENGTH, "vocabSize": 256}

_PUBLISHED_SIZES = [  # parameters, layers, hidden size, heads: GPT-3's table 2.1, with OPT's 30B and 66B between
    (125e6, 12, 768, 12),
    (350e6, 24, 1024, 16),
    (760e6, 24, 1536, 16),
    (1.3e9, 24, 2048, 16),
    (2.7e9, 32, 2560, 32),
    (6.7e9, 32, 4096, 32),
    (13e9, 40, 5120, 40),
    (30e9, 48, 7168, 56),
    (66e9, 64, 9216, 72),
    (175e9, 96, 12288, 96),
]

MAX_PARAMETERS = 10**18
"""More weights are counted as so many: no GPU holds the least part of them."""

RECIPES: dict[str, dict[str, HyperparameterRule]] = {"gpt": GPT}


def read_hyperparameter(spec: JobSpec, name: str, default: Any = None) -> Any:
    """Return a hyperparameter's value, or the default where the value is not valid: a user's own script may take
    anything under these names."""
    value = spec.hyperparameters.get(name)
    return value if GPT[name].accepts(value) else default


def find_problems(spec: JobSpec) -> list[Problem]:
    """Return what is wrong with recipe and hyperparameters. With a user's own script any name is allowed: the script
    reads them from FERMI_HYPERPARAMETERS."""
    if spec.entrypoint is not None:
        return []
    known = RECIPES.get(spec.recipe)
    params: dict[str, Any]
    if known is None:
        return [build_unknown_recipe("modelId", spec.recipe)]
    found: list[Problem] = []
    for name, value in spec.hyperparameters.items():
        field = f"hyperparameters.{name}"
        if name not in known:
            params = {
                "name": name,
                "allowed": ", ".join(sorted(known)),
                "nearest": suggestions.suggest_name(name, known),
            }
            found.append(Problem(field, "HYPERPARAMETER_UNKNOWN", params))
        elif known[name].kind is str and not known[name].choices:
            if not isinstance(value, str) or not 0 < len(value) <= 200:
                params = {
                    "name": name,
                    "found": value,
                    "allowed": NestedText("VALUE_TEXT", {"high": 200}),
                    "nearest": None,
                }
                found.append(Problem(field, "HYPERPARAMETER_INVALID", params))
        elif not known[name].accepts(value):
            rule = known[name]
            params = {"name": name, "found": value, "allowed": rule.allowed(), "nearest": rule.nearest(value)}
            found.append(Problem(field, "HYPERPARAMETER_INVALID", params))
    hidden, heads = spec.hyperparameters.get("hiddenSize"), spec.hyperparameters.get("heads")
    if not found and isinstance(hidden, int) and isinstance(heads, int) and hidden % heads:
        params = {"hidden": hidden, "heads": heads, "nearest": suggestions.suggest_multiples(hidden, heads)}
        found.append(Problem("hyperparameters.hiddenSize", "HIDDEN_NOT_DIVISIBLE_BY_HEADS", params))
    return found


GPT2_TOKENS, GPT2_VOCABULARY = 50_257, 50_304
"""Of its BPE, which most tokenised files hold; the vocabulary is the next multiple of 64, as is usual."""


def find_vocabulary_problems(spec: JobSpec, largest_token: int | None) -> list[Problem]:
    """Return the problem of tokens beyond the vocabulary, with which the trainer would refuse to start.
    `largest_token`: of the data, None where unknown."""
    size = read_hyperparameter(spec, "vocabSize", _DEFAULT_SIZES["vocabSize"])
    if spec.entrypoint or largest_token is None or largest_token < size:
        return []
    near = GPT2_VOCABULARY if 256 <= largest_token < GPT2_TOKENS else largest_token + 1
    params = {"found": size, "largest": largest_token, "nearest": near}
    return [Problem("hyperparameters.vocabSize", "TOKENS_BEYOND_VOCABULARY", params)]


def read_batch(spec: JobSpec) -> tuple[int, int] | None:
    """Return sequences per process and micro step, and micro steps per optimizer step; None where a user's own script
    does not say, or says no such number."""
    rows, steps = (spec.hyperparameters.get(name) for name in ("batchSize", "gradientAccumulationSteps"))
    rows = DEFAULT_BATCH_SIZE if rows is None and not spec.entrypoint else rows
    steps = 1 if steps is None else steps
    valid = GPT["batchSize"].accepts(rows) and GPT["gradientAccumulationSteps"].accepts(steps)
    return (int(rows), int(steps)) if rows is not None and valid else None


def require_own_script(spec: JobSpec, framework: str) -> list[Problem]:
    """Return the problem of a job without a script, for a framework (by its label) that has no reference trainer."""
    return [] if spec.entrypoint else [Problem("entrypoint.script", "RECIPE_NOT_OFFERED", {"framework": framework})]


def build_unknown_recipe(field: str, recipe: str) -> Problem:
    """Return the problem of an unknown recipe."""
    near = suggestions.suggest_name(recipe, RECIPES) or next(iter(RECIPES))
    return Problem(field, "RECIPE_UNKNOWN", {"found": recipe, "allowed": ", ".join(RECIPES), "nearest": near})


def count_model_parameters(spec: JobSpec) -> int | None:
    """Return how many weights the job's model has; None for a user's own script whose model size nobody stated."""
    if spec.model_parameters is not None:
        return spec.model_parameters
    return None if spec.entrypoint or spec.recipe != "gpt" else count_gpt_parameters(spec.hyperparameters)


def count_gpt_parameters(hyperparameters: Mapping[str, Any]) -> int:
    """Return the weights of the reference GPT: per layer 12 h² in matrices and 13 h in biases and norms; embeddings,
    final norm and head once. An invalid value counts as left out."""

    def dimension(name: str) -> int:
        rule, value = GPT.get(name), hyperparameters.get(name)
        return int(value) if value is not None and rule and rule.accepts(value) else _DEFAULT_SIZES[name]

    layers, hidden, length, words = map(dimension, _DEFAULT_SIZES)
    return min(layers * (12 * hidden**2 + 13 * hidden) + (2 * words + length + 2) * hidden, MAX_PARAMETERS)


def choose_typical_sizes(parameters: int) -> dict[str, int]:
    """Return hyperparameters of the published GPT whose size is nearest, for a model of which only the size is
    known."""
    distance = [(abs(math.log(size / max(parameters, 1))), row) for size, *row in _PUBLISHED_SIZES]
    layers, hidden, heads = min(distance)[1]
    return {"layers": layers, "hiddenSize": hidden, "heads": heads, "sequenceLength": 2048}


def build_command(spec: JobSpec, trainer: str, extra: Mapping[str, Any]) -> tuple[Value, ...]:
    """Return the command of a rank: the user's script, or the reference `trainer` module with the hyperparameters as
    its arguments. `extra`: more arguments of the trainer (flag -> value; True = the flag alone)."""
    if spec.entrypoint is not None:
        return spec.entrypoint.build_command(resumed=spec.resume_rule.filled_args if spec.resume_rule else ())
    arguments: dict[str, Any] = {
        "train_data_path": spec.train_data,
        "valid_data_path": spec.valid_data,
        "checkpoint_dir": spec.checkpoint_dir,
        **({"resume_from": spec.resume_from} if spec.resume_from else {}),
        **{GPT[name].flag: spec.hyperparameters[name] for name in GPT if name in spec.hyperparameters},
        **extra,
    }
    words: list[Value] = [Late.PYTHON, "-u", "-m", trainer]
    for flag, value in arguments.items():
        if value is True:
            words.append(f"--{flag}")
        elif value is not False:
            words += [f"--{flag}", f"{value:g}" if isinstance(value, float) else str(value)]
    return tuple(words)
