"""Recommends a framework for a model on the chosen environments."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apps.accounts import access
from apps.accounts.models import User
from apps.catalog.models import Model
from apps.clusters import selectors as clusters
from apps.common.errors import ProblemsError
from apps.training.core.engine_access import get_backend
from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec, Problem
from fermi.planning import installed
from fermi.planning.recommend import Recommendation
from fermi.planning.recommend import recommend_frameworks as weigh


class FrameworkAdvice(NamedTuple):
    """Frameworks for `job`: those that suit it, best first, and the others with the reasons."""

    job: JobSpec
    suitable: Sequence[Recommendation]
    rejected: Sequence[Recommendation]


def recommend_framework(
    user: User,
    *,
    environment_ids: Sequence[str],
    parameters: int | None,
    model_id: str | None,
    master: str | None,
    hyperparameters: Mapping[str, Any],
) -> FrameworkAdvice:
    """Return the frameworks that suit, and the rejected ones. `parameters` wins over what `hyperparameters` add up to,
    and these over what the model says of itself. Raises ProblemsError with all problems."""
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
    return FrameworkAdvice(job, *weigh(job, lambda mine: installed.find_problems(mine, backend)))
