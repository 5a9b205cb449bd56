"""What a framework declares, and what holds for whatever it leaves out.

A framework is one module (or package). At its top level it must have `INFO` and `plan`, and may have the rest:

    INFO          what it is                                             an `Info`
    plan          (JobSpec) -> Plan; pure
    OPTIONS       JSON Schema of `distributedConfig.options`             default: no options
    PRELOAD       modules worth importing once before ranks are forked   default: none
    problems      (JobSpec) -> list[Problem], all broken rules           default: what `OPTIONS` does not allow
    warnings      (JobSpec) -> list[Problem], which stop nothing         default: none
    propose       (JobSpec) -> Proposal for what is left empty           default: data parallelism over all ranks, where
                                                                         the framework has no other
    splits        (JobSpec) -> strategies to propose for one that cannot default: none
                  run, the nearest first
    batch         (JobSpec) -> (sequences per rank and micro step,       default: of the hyperparameters
                  micro steps), or None where nobody knows
    effective_batch  (JobSpec) -> `effective.Batch`, or None             default: `batch` × all ranks
    resized       (JobSpec, Division) -> JobSpec: what an elastic job    default: the reference trainers' own
                  is told when the batch is divided anew                 hyperparameters
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal, Protocol

from fermi.frameworks._planning import propose_data_parallel
from fermi.jobs import effective_batch as effective
from fermi.jobs import elastic, json_shape, options, rank_env, recipes
from fermi.jobs.spec import JobSpec, Plan, Problem, Proposal


class Planner(Protocol):
    """What a task needs in order to run; a `Framework` can do more."""

    @property
    def plan(self) -> Callable[[JobSpec], Plan]:
        """Returns the plan of a job. Pure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """What a framework states about itself, for people and for the parts of the platform that treat frameworks
    differently. `label`: its proper name. `description`: where it is empty, it has a text in `fermi.messages` (see
    `texts`)."""

    label: str
    description: str = ""
    parallelism: Sequence[str] = ("data",)
    """What is split among ranks: `data` (each rank holds the whole model), `sharded` or `fsdp` (and its state, as an
    option says or as a degree in `strategy`), `tensor`, `pipeline`, `context` (and the model itself)."""
    model_size: tuple[int, int | None] = (0, None)
    """Numbers of parameters that it suits: from the first on, below the second."""
    stack: str = "torch"
    """The library that the model is written in, by the name under which it is installed and imported."""
    launcher: str = "torchrun"
    """The usual program for starting its ranks without the platform; empty where there is none."""
    packages: Sequence[str] = ()
    """What else has to be installed on each node, by the names under which it is installed."""
    install: str = ""
    """The command that installs it, where pip alone does not."""
    reserved: Sequence[str] = ()
    """Environment variables that its plan sets for each rank, as regular expressions: no user may set them."""
    elastic: Literal["", "even", "uneven"] = ""
    """Whether a job of it can resume from a checkpoint with another number of ranks; `even`: only if all of them have
    as many rows of the batch."""
    needs_cuda: bool = False
    """Whether no CPU process can stand in for a GPU."""
    recipe: bool = True
    """Whether it trains the reference model without a user's own script."""

    @property
    def replicates(self) -> bool:
        """Whether each rank holds the whole model and its optimizer."""
        return set(self.parallelism) <= {"data"}

    @property
    def splits_state(self) -> bool:
        """Whether it fits a model of any size into more ranks, whatever the model's structure."""
        return not {"sharded", "fsdp"}.isdisjoint(self.parallelism)

    @property
    def splits_model(self) -> bool:
        return not set(self.parallelism) <= {"data", "sharded", "fsdp"}

    @property
    def install_command(self) -> str:
        return self.install or f"pip install {' '.join([self.stack, *self.packages])}"

    def suits(self, parameters: int) -> bool:
        low, high = self.model_size
        return low <= parameters and (high is None or parameters < high)


class Framework:
    """A framework's module with the defaults for what it leaves out."""

    def __init__(self, name: str, module: ModuleType) -> None:
        """Raises TypeError, with a message for the module's author, where a required part is missing or of a wrong
        kind."""
        _check_parts(name, module)
        self.name = name
        self.info: Info = module.INFO
        self._plan: Callable[[JobSpec], Plan] = module.plan
        self.options: Mapping[str, Any] = getattr(module, "OPTIONS", options.build_schema())
        json_shape.refuse_unknown_keywords(self.options)
        self.preload: Sequence[str] = getattr(module, "PRELOAD", ())
        self._problems = getattr(module, "problems", self._not_allowed)
        self._warnings: Callable[[JobSpec], list[Problem]] = getattr(module, "warnings", lambda _: [])
        self._propose = getattr(module, "propose", self._data_parallel)
        self._effective_batch: Callable[[JobSpec], effective.EffectiveBatch | None] = getattr(
            module, "effective_batch", self._of_all_ranks
        )
        self.splits: Callable[[JobSpec], list[Mapping[str, int]]] = getattr(module, "splits", lambda _: [])
        self._batch: Callable[[JobSpec], tuple[int, int] | None] = getattr(module, "batch", recipes.read_batch)
        self._resized: Callable[[JobSpec, elastic.BatchDivision], JobSpec] = getattr(
            module, "resized", elastic.set_batch_hyperparameters
        )

    def plan(self, spec: JobSpec) -> Plan:
        """Return the plan of a job. Pure."""
        return self._plan(self.settled(spec))

    def problems(self, spec: JobSpec) -> list[Problem]:
        """Return all broken rules at once; empty = `plan` will succeed. Never raises."""
        return list(self._problems(self.settled(spec)))

    def warnings(self, spec: JobSpec) -> list[Problem]:
        """Return warnings, which do not stop the job."""
        spec = self.settled(spec)
        own = ["dataParallel", *(["fsdpParallel"] if "fsdp" in self.info.parallelism else [])]
        split = [] if self.info.splits_model else rank_env.find_unrendered_strategy(spec, self.info.label, own)
        return [*split, *self._warnings(spec)]

    def propose(self, spec: JobSpec) -> Proposal:
        """Return values for what is left empty, chosen for these nodes; what the user gave is kept and not repeated.
        `problems` and `plan` check and render a job as if the proposal had been given."""
        proposal: Proposal = self._propose(self.settled(spec))
        return proposal

    def batch(self, spec: JobSpec) -> tuple[int, int] | None:
        """Return sequences per rank and micro step, and micro steps per optimizer step; None: unknown."""
        return None if self._problems(spec) else self._batch(spec)

    def effective_batch(self, spec: JobSpec) -> effective.EffectiveBatch | None:
        """Return the effective batch over all ranks; an elastic job keeps that of the size asked for."""
        return self._effective_batch(elastic.restore_full_size(spec) if elastic.is_resized(spec) else spec)

    def settled(self, spec: JobSpec) -> JobSpec:
        """Return the job as its ranks get it: an elastic one divides its batch among the nodes that it has now."""
        if not elastic.is_resized(spec):
            return spec
        spec = replace(spec, strategy={name: size for name, size in spec.strategy.items() if name != "dataParallel"})
        share = elastic.divide_job_batch(spec)
        return self._resized(spec, share) if share else spec

    def _not_allowed(self, spec: JobSpec) -> list[Problem]:
        return options.find_problems(spec, self.options)

    def _of_all_ranks(self, spec: JobSpec) -> effective.EffectiveBatch | None:
        found = self.batch(spec)
        return effective.build_effective_batch(spec, found[0], spec.world_size, found[1]) if found else None

    def _data_parallel(self, spec: JobSpec) -> Proposal:
        return Proposal() if self.info.splits_model else propose_data_parallel(spec)


_PARTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "INFO": ("an Info of fermi.frameworks.base", lambda part: isinstance(part, Info)),
    "plan": ("a function that makes a Plan of a JobSpec", callable),
    "OPTIONS": ("a JSON Schema, as fermi.jobs.options.build_schema makes it",
                lambda part: isinstance(part, Mapping) and isinstance(part.get("properties"), Mapping)),
    "PRELOAD": ("names of modules", lambda part: isinstance(part, tuple | list)),
    "problems": ("a function of a JobSpec", callable),
    "warnings": ("a function of a JobSpec", callable),
    "effective_batch": ("a function of a JobSpec", callable),
    "propose": ("a function of a JobSpec", callable),
    "splits": ("a function of a JobSpec", callable),
    "batch": ("a function of a JobSpec", callable),
    "resized": ("a function of a JobSpec and a Division", callable),
}  # fmt: skip
_REQUIRED_PARTS = ("INFO", "plan")


def _check_parts(name: str, module: ModuleType) -> None:
    known = [part for part in _PARTS if hasattr(module, part)]
    faults = [f"it has no `{part}`, {_PARTS[part][0]}" for part in _REQUIRED_PARTS if part not in known]
    for part in known:
        kind, fits = _PARTS[part]
        if not fits(found := getattr(module, part)):
            faults.append(f"its `{part}` is {type(found).__name__} {found!r}, not {kind}")
    if faults:
        has = ", ".join(f"`{part}`" for part in known) or "none of a framework's names"
        raise TypeError(f"{module.__name__} cannot be the framework {name}: {'; '.join(faults)}. It has {has}.")
