"""Recommends a framework for a model on the chosen environments."""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.accounts import access
from apps.accounts.models import User
from apps.catalog.models import Model
from apps.clusters import selectors as clusters
from apps.common.errors import ProblemsError
from apps.common.texts import text
from apps.training.core.engine_access import backend_for
from apps.training.presenters import task_presenter
from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec, Problem
from fermi.planning import installed, plugins, scenarios
from fermi.planning.recommend import Recommendation
from fermi.planning.recommend import recommend as weigh


def recommend(
    user: User,
    *,
    environment_ids: Sequence[str],
    parameters: int | None,
    model_id: str | None,
    master: str | None,
    hyperparameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the frameworks that suit, best first, and the rejected ones with reasons, as the API answers them.
    `parameters` wins over what `hyperparameters` add up to, and these over what the model says of itself. Raises
    ProblemsError with all problems."""
    environments, problems = clusters.pick(user, environment_ids, "environmentIds")
    if not environment_ids:
        problems.append(Problem("environmentIds", "ENVIRONMENT_REQUIRED"))
    if master is not None and master not in environment_ids:
        allowed = ", ".join(environment_ids) or "–"
        problems.append(Problem("masterNode", "MASTER_NOT_SELECTED", {"master": master, "allowed": allowed}))
    model = access.visible(Model.objects.all(), user, shared=True).filter(pk=model_id).first()
    if model_id is not None and model is None:
        problems.append(Problem("modelId", "MODEL_UNKNOWN", {"model": model_id}))
    if model_id is None and parameters is None:
        problems.append(Problem("modelParameters", "MODEL_SIZE_REQUIRED"))
    if problems:
        raise ProblemsError(problems)
    job = JobSpec(
        "task-recommend",
        "",
        tuple(clusters.snapshots(environments)),
        master or environment_ids[0],
        recipe=model.recipe if model else "gpt",
        model_parameters=parameters or (model.parameters if model and not hyperparameters else None),
        hyperparameters={**(model.defaults if model else recipes.typical(parameters or 1)), **hyperparameters},
    )
    backend = backend_for(environments[0].cluster)
    good, bad = weigh(job, lambda mine: installed.problems(mine, backend))
    return {
        "modelParameters": recipes.parameters(job),
        "items": [{**_shown(one), "strategy": one.strategy, "options": one.options} for one in good],
        "rejected": [_shown(one) for one in bad],
        "scenes": _scenes(job),
    }


def _scenes(job: JobSpec) -> list[dict[str, Any]]:
    """Return the whole table of scenarios; the last one that fits suits these nodes best."""
    fits = scenarios.fitting(len(job.nodes), sum(max(node.gpu_count, 1) for node in job.nodes))
    return [
        {
            "code": scene.code,
            "name": text(scene.code)[0],
            "feature": text(scene.code)[1],
            "nodes": {"min": scene.nodes[0], "max": scene.nodes[1]},
            "gpus": {"min": scene.gpus[0], "max": scene.gpus[1]},
            "frameworks": [{"framework": name, "label": _label(name)} for name in scene.frameworks],
            "fits": scene in fits,
        }
        for scene in scenarios.SCENES
    ]


def _label(framework: str) -> str:
    return text("SINGLE_MACHINE")[0] if framework == scenarios.SINGLE else plugins.framework(framework).info.label


def _shown(one: Recommendation) -> dict[str, Any]:
    return {
        "framework": one.framework,
        "label": plugins.framework(one.framework).info.label,
        "reasons": [task_presenter.warning(reason.code, reason.params) for reason in one.reasons],
    }
