"""Megatron-LM + DeepSpeed: Megatron splits the model, DeepSpeed's ZeRO the optimizer (and gradients and weights).

The training script is the user's: `pretrain_gpt.py` of deepspeedai/Megatron-DeepSpeed, or one that takes the same
arguments. Sizes, split, memory, cost and search are those of `frameworks/megatron`; what differs is here.

request.py    what may be asked for         rules.py     what DeepSpeed refuses, or trains wrongly, beside Megatron
launch.py     the arguments and `ds_config.json`, which must agree
"""

from collections.abc import Mapping
from dataclasses import replace

from fermi.frameworks.base import Info
from fermi.frameworks.deepspeed import keys
from fermi.frameworks.megatron import arguments, findings, plans, search
from fermi.frameworks.megatron import rules as megatron
from fermi.frameworks.megatron.plans import PRELOAD
from fermi.frameworks.megatron.request import Request
from fermi.frameworks.megatron_deepspeed import launch, rules
from fermi.frameworks.megatron_deepspeed.request import OPTIONS, read
from fermi.frameworks.parallelism import words
from fermi.jobs import effective_batch as effective
from fermi.jobs import options, recipes
from fermi.jobs.rank_env import COMPILED, COMPILED_IN
from fermi.jobs.spec import Entrypoint, JobSpec, Late, Plan, Problem, Proposal, Value

__all__ = ["INFO", "OPTIONS", "PRELOAD", "effective_batch", "plan", "problems", "propose", "splits", "warnings"]

INFO = Info(
    label="Megatron-LM + DeepSpeed",
    parallelism=("tensor", "pipeline", "data"),
    model_size=(100_000_000_000, None),
    packages=("deepspeed",),
    needs_cuda=True,
    recipe=False,
)

SCRIPT = Entrypoint("pretrain_gpt.py")
"""Stands in a plan for a script that is not named yet."""


def problems(spec: JobSpec) -> list[Problem]:
    """Return broken rules, as if the proposal had been given. Where what is given leaves no valid split, its own broken
    rules are named."""
    found = recipes.own_script_only(spec, INFO.label) + keys.problems(spec, launch.DECIDED_KEYS)
    request = read(spec)
    if isinstance(request, list):
        return found + request
    split, said = search.settled(request), {problem.code for problem in recipes.problems(spec)}

    def nearest() -> str:
        return next(map(words, search.nearest(request, most=1)), "–")

    broken = [*megatron.problems(request, split, nearest), *rules.problems(request, split, nearest)]
    found += [problem for problem in broken if problem.code not in said]
    found += findings.positions(spec, request) + findings.precision(spec) + findings.connections(spec, split)
    found += arguments.own_arguments(spec, launch.DECIDED_ARGUMENTS) + rules.own_arguments(spec)
    return found or findings.wants_too_much(request, split)


def warnings(spec: JobSpec) -> list[Problem]:
    """Return warnings. Every job gets the one that this combination has not been run on GPUs here."""
    untried = Problem("distributedConfig.framework", "MEGATRON_DEEPSPEED_UNTRIED")
    request = read(spec)
    if isinstance(request, list) or problems(spec):
        return [untried]
    return [untried, *findings.warnings(request, search.settled(request))]


def propose(spec: JobSpec) -> Proposal:
    request = read(spec)
    if isinstance(request, list):
        return Proposal()
    made = plans.proposal(spec, request)
    if "zeroStage" not in made.options:
        return made
    split = search.settled(request)
    params = {"stage": split.zero, "pipeline": split.pipeline, "data": split.data * split.context}
    why = Problem("distributedConfig.options.zeroStage", "MEGATRON_DEEPSPEED_STAGE", params)
    return replace(made, reasons=(*made.reasons, why))


def splits(spec: JobSpec) -> list[Mapping[str, int]]:
    request = read(spec)
    return [] if isinstance(request, list) else findings.splits(request, problems(spec))


def effective_batch(spec: JobSpec) -> effective.Batch | None:
    request = read(spec)
    return None if isinstance(request, list) else findings.effective_batch(spec, search.settled(request))


def plan(spec: JobSpec) -> Plan:
    request = read(spec)
    assert isinstance(request, Request)
    script = spec.entrypoint or SCRIPT
    split = search.settled(request)
    given = launch.arguments(spec, request, split)
    appended = arguments.words(given) if options.value(spec, OPTIONS, "appendArguments") else []
    command = (Late.PYTHON, "-u", *script.words, *appended, *script.args)
    env: dict[str, Value] = {
        "FERMI_DEEPSPEED_CONFIG": launch.CONFIG_FILE,
        COMPILED_IN: COMPILED,  # see docs/decisions/0008
    }
    files = {"ds_config.json": launch.config(spec, request, split)}
    return plans.plan(spec, request, split, command, given, files=files, env=env)
