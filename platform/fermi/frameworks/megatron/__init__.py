"""Megatron-LM: the model itself is split, by tensor inside its layers and by pipeline between them.

request.py    what the job says: sizes, GPUs, what the user settled
split.py      one complete way to split
rules.py      which splits Megatron refuses
memory.py     what a split takes on a GPU            cost.py         how long a step takes
search.py     the fastest split that fits            arguments.py    what Megatron is launched with
findings.py   what is said of a job in words  plans.py        what is proposed and planned

The framework `megatron_deepspeed` has all of it but the optimizer in common.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fermi.frameworks.base import Info
from fermi.frameworks.megatron import arguments, findings, plans, rules, search
from fermi.frameworks.megatron.plans import PRELOAD
from fermi.frameworks.megatron.request import OPTIONS, MegatronRequest, read_request
from fermi.frameworks.parallelism import format_degrees
from fermi.jobs import effective_batch as effective
from fermi.jobs import options, recipes
from fermi.jobs.spec import JobSpec, Late, Plan, Problem, Proposal, Value

__all__ = ["INFO", "OPTIONS", "PRELOAD", "Late", "effective_batch", "plan", "problems", "propose", "splits", "warnings"]

INFO = Info(
    label="Megatron-LM",
    parallelism=("tensor", "pipeline", "data"),
    model_size=(100_000_000_000, None),
    packages=("megatron-core",),
    needs_cuda=True,
)


def problems(spec: JobSpec) -> list[Problem]:
    """Return broken rules, as if the proposal had been given. Where what is given leaves no valid split, its own broken
    rules are named."""
    request = read_request(spec)
    if isinstance(request, list):
        return request
    split = search.choose_split(request)
    said = {problem.code for problem in recipes.find_problems(spec)}  # the recipe knows one of the rules, too
    broken = rules.find_problems(
        request, split, lambda: next(map(format_degrees, search.find_nearest_strategies(request, max_count=1)), "–")
    )
    found = [problem for problem in broken if problem.code not in said]
    found += (
        findings.check_positions(spec, request)
        + findings.check_precision(spec)
        + findings.check_connections(spec, split)
    )
    found += arguments.find_decided_arguments(spec)
    return found or findings.check_state_memory(request, split)


def warnings(spec: JobSpec) -> list[Problem]:
    request = read_request(spec)
    if isinstance(request, list) or problems(spec):
        return []
    return findings.find_warnings(request, search.choose_split(request))


def propose(spec: JobSpec) -> Proposal:
    request = read_request(spec)
    return Proposal() if isinstance(request, list) else plans.build_proposal(spec, request)


def splits(spec: JobSpec) -> list[Mapping[str, int]]:
    request = read_request(spec)
    return [] if isinstance(request, list) else findings.suggest_splits(request, problems(spec))


def effective_batch(spec: JobSpec) -> effective.EffectiveBatch | None:
    request = read_request(spec)
    return None if isinstance(request, list) else findings.build_effective_batch(spec, search.choose_split(request))


def plan(spec: JobSpec) -> Plan:
    request = read_request(spec)
    assert isinstance(request, MegatronRequest)
    split = search.choose_split(request)
    given = arguments.build_arguments(spec, request, split)
    return plans.build_megatron_plan(spec, request, split, _build_command(spec, given), given, files={}, env={})


def _build_command(spec: JobSpec, arguments_given: dict[str, Any]) -> tuple[Value, ...]:
    """Return the trainer's command, with Megatron's names for its hyperparameters; or the user's script, with our
    arguments before its own."""
    if spec.entrypoint is None:
        left = {**arguments.MEGATRON_NAMES, **dict.fromkeys(arguments.SIZE_HYPERPARAMETERS)}
        rest = {name: value for name, value in spec.hyperparameters.items() if name not in left}
        return recipes.build_command(replace(spec, hyperparameters=rest), "fermi.train.train_megatron", arguments_given)
    own = spec.entrypoint
    appended = arguments.list_words(arguments_given) if options.read_option(spec, OPTIONS, "appendArguments") else []
    return own.build_command(appended, spec.resume_rule.filled_args if spec.resume_rule else ())
