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
from fermi.frameworks.megatron.request import MegatronRequest
from fermi.frameworks.megatron_deepspeed import launch, rules
from fermi.frameworks.megatron_deepspeed.request import OPTIONS, read_request
from fermi.frameworks.parallelism import format_degrees
from fermi.jobs import effective_batch as effective
from fermi.jobs import options, recipes
from fermi.jobs.rank_env import COMPILE_PATH, COMPILE_VARIABLE
from fermi.jobs.spec import Entrypoint, JobSpec, Late, Plan, Problem, Proposal, Value

__all__ = ["INFO", "OPTIONS", "PRELOAD", "Late", "effective_batch", "plan", "problems", "propose", "splits", "warnings"]

INFO = Info(
    label="Megatron-LM + DeepSpeed",
    parallelism=("tensor", "pipeline", "data"),
    model_size=(100_000_000_000, None),
    packages=("deepspeed",),
    needs_cuda=True,
    recipe=False,
)

DEFAULT_SCRIPT = Entrypoint("pretrain_gpt.py")
"""Stands in a plan for a script that is not named yet."""


def problems(spec: JobSpec) -> list[Problem]:
    """Return broken rules, as if the proposal had been given. Where what is given leaves no valid split, its own broken
    rules are named."""
    found = recipes.require_own_script(spec, INFO.label) + keys.find_problems(spec, launch.DECIDED_KEYS)
    request = read_request(spec)
    if isinstance(request, list):
        return found + request
    split, said = search.choose_split(request), {problem.code for problem in recipes.find_problems(spec)}

    def nearest() -> str:
        return next(map(format_degrees, search.find_nearest_strategies(request, max_count=1)), "–")

    broken = [*megatron.find_problems(request, split, nearest), *rules.find_problems(request, split, nearest)]
    found += [problem for problem in broken if problem.code not in said]
    found += (
        findings.check_positions(spec, request)
        + findings.check_precision(spec)
        + findings.check_connections(spec, split)
    )
    found += arguments.find_decided_arguments(spec, launch.DECIDED_ARGUMENTS) + rules.find_refused_arguments(spec)
    return found or findings.check_state_memory(request, split)


def warnings(spec: JobSpec) -> list[Problem]:
    """Return warnings. Every job gets the one that this combination has not been run on GPUs here."""
    untried = Problem("distributedConfig.framework", "MEGATRON_DEEPSPEED_UNTRIED")
    request = read_request(spec)
    if isinstance(request, list) or problems(spec):
        return [untried]
    return [untried, *findings.find_warnings(request, search.choose_split(request))]


def propose(spec: JobSpec) -> Proposal:
    request = read_request(spec)
    if isinstance(request, list):
        return Proposal()
    made = plans.build_proposal(spec, request)
    if "zeroStage" not in made.options:
        return made
    split = search.choose_split(request)
    params = {"stage": split.zero, "pipeline": split.pipeline, "data": split.data * split.context}
    why = Problem("distributedConfig.options.zeroStage", "MEGATRON_DEEPSPEED_STAGE", params)
    return replace(made, reasons=(*made.reasons, why))


def splits(spec: JobSpec) -> list[Mapping[str, int]]:
    request = read_request(spec)
    return [] if isinstance(request, list) else findings.suggest_splits(request, problems(spec))


def effective_batch(spec: JobSpec) -> effective.EffectiveBatch | None:
    request = read_request(spec)
    return None if isinstance(request, list) else findings.build_effective_batch(spec, search.choose_split(request))


def plan(spec: JobSpec) -> Plan:
    request = read_request(spec)
    assert isinstance(request, MegatronRequest)
    script = spec.entrypoint or DEFAULT_SCRIPT
    split = search.choose_split(request)
    given = launch.build_arguments(spec, request, split)
    appended = arguments.list_words(given) if options.read_option(spec, OPTIONS, "appendArguments") else []
    command = script.build_command(appended, spec.resume_rule.filled_args if spec.resume_rule else ())
    env: dict[str, Value] = {
        "FERMI_DEEPSPEED_CONFIG": launch.CONFIG_FILE,
        COMPILE_VARIABLE: COMPILE_PATH,  # see docs/decisions/0008
    }
    files = {"ds_config.json": launch.render_config(spec, request, split)}
    return plans.build_megatron_plan(spec, request, split, command, given, files=files, env=env)
