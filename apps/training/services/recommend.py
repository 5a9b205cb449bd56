"""Recommends a framework for a model on the chosen environments."""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.accounts import access
from apps.accounts.models import User
from apps.catalog.models import Model
from apps.clusters import selectors as clusters
from apps.common.errors import ProblemsError
from apps.common.texts import render_text
from apps.training.core.engine_access import get_backend
from apps.training.presenters import task_presenter
from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec, Problem
from fermi.planning import installed, plugins, scenarios
from fermi.planning.recommend import Recommendation
from fermi.planning.recommend import recommend_frameworks as weigh


def recommend_framework(
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
    environments, problems = clusters.select_environments(user, environment_ids, "environmentIds")
    if not environment_ids:
        problems.append(Problem("environmentIds", "ENVIRONMENT_REQUIRED"))
    if master is not None and master not in environment_ids:
        allowed = ", ".join(environment_ids) or "–"
        problems.append(Problem("masterNode", "MASTER_NOT_SELECTED", {"master": master, "allowed": allowed}))
    model = access.filter_visible(Model.objects.all(), user, shared=True).filter(pk=model_id).first()
    if model_id is not None and model is None:
        problems.append(Problem("modelId", "MODEL_UNKNOWN", {"model": model_id}))
    if model_id is None and parameters is None:
        problems.append(Problem("modelParameters", "MODEL_SIZE_REQUIRED"))
    if problems:
        raise ProblemsError(problems)
    job = JobSpec(
        "task-recommend",
        "",
        tuple(clusters.build_nodes(environments)),
        master or environment_ids[0],
        recipe=model.recipe if model else "gpt",
        model_parameters=parameters or (model.parameters if model and not hyperparameters else None),
        hyperparameters={
            **(model.defaults if model else recipes.choose_typical_sizes(parameters or 1)),
            **hyperparameters,
        },
    )
    backend = get_backend(environments[0].cluster)
    good, bad = weigh(job, lambda mine: installed.find_problems(mine, backend))
    return {
        "modelParameters": recipes.count_model_parameters(job),
        "items": [{**_serialize_recommendation(one), "strategy": one.strategy, "options": one.options} for one in good],
        "rejected": [_serialize_recommendation(one) for one in bad],
        "scenes": _list_scenarios(job),
    }


def _list_scenarios(job: JobSpec) -> list[dict[str, Any]]:
    """Return the whole table of scenarios; the last one that fits suits these nodes best."""
    fits = scenarios.list_fitting_scenarios(len(job.nodes), sum(max(node.gpu_count, 1) for node in job.nodes))
    return [
        {
            "code": scene.code,
            "name": render_text(scene.code)[0],
            "feature": render_text(scene.code)[1],
            "nodes": {"min": scene.nodes[0], "max": scene.nodes[1]},
            "gpus": {"min": scene.gpus[0], "max": scene.gpus[1]},
            "frameworks": [{"framework": name, "label": _get_label(name)} for name in scene.frameworks],
            "fits": scene in fits,
        }
        for scene in scenarios.SCENARIOS
    ]


def _get_label(framework: str) -> str:
    return (
        render_text("SINGLE_MACHINE")[0]
        if framework == scenarios.SINGLE
        else plugins.get_framework(framework).info.label
    )


def _serialize_recommendation(recommendation: Recommendation) -> dict[str, Any]:
    return {
        "framework": recommendation.framework,
        "label": plugins.get_framework(recommendation.framework).info.label,
        "reasons": [task_presenter.serialize_warning(reason.code, reason.params) for reason in recommendation.reasons],
    }
