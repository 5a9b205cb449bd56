"""Lists the use cases that are ready to be submitted, each with environments of the user that it could use."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from apps.accounts import access
from apps.accounts.models import User
from apps.catalog.models import DatasetVersion, Model, VersionStatus
from apps.clusters import selectors as clusters
from apps.clusters.models import EnvironmentStatus
from apps.common.errors import ApiError
from fermi.jobs.spec import Node, Problem
from fermi.planning.templates import TaskTemplate, TemplateVariant, load_templates

MAX_ENVIRONMENTS = 1000


class FilledVariant(NamedTuple):
    """A variant of a template with a request on the user's environments, and what is missing for it."""

    variant: TemplateVariant
    request: dict[str, Any]
    missing: Sequence[Problem]


class FilledTemplate(NamedTuple):
    """A template with both of its variants."""

    template: TaskTemplate
    full: FilledVariant
    small: FilledVariant


def list_templates(user: User) -> list[FilledTemplate]:
    """Return all templates."""
    groups, data = _group_environments(user), _choose_data(user)
    return [_fill_template(template, groups, data) for template in load_templates().values()]


def find_template(user: User, key: str) -> FilledTemplate:
    """Return the template. Raises ApiError 404."""
    if key not in load_templates():
        raise ApiError(404, "NOT_FOUND")
    return _fill_template(load_templates()[key], _group_environments(user), _choose_data(user))


def _group_environments(user: User) -> list[list[Node]]:
    """Return usable environments that one task may use together; free ones first."""
    rows = clusters.list_visible_environments(user).filter(status=EnvironmentStatus.RUNNING, cordoned=False)
    found: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for row in rows.select_related("zone").order_by("lease__holder", "pk")[:MAX_ENVIRONMENTS]:
        found[row.project_id, row.cluster_id].append(clusters.build_node(row))
    return list(found.values())


def _choose_data(user: User) -> dict[str, str]:
    """Return the first dataset version and model that the user may use, as the create page chooses them; empty where
    there is none."""
    versions = DatasetVersion.objects.exclude(status=VersionStatus.FAILED).order_by("dataset__pk", "-created_at")
    version = access.filter_visible(versions, user, "dataset__project", shared=True).first()
    model = access.filter_visible(Model.objects.all(), user, shared=True).order_by("pk").first()
    return {
        "datasetId": version.dataset_id if version else "",
        "datasetVersionId": version.pk if version else "",
        "modelId": model.pk if model else "",
    }


def _fill_template(template: TaskTemplate, groups: Sequence[Sequence[Node]], data: dict[str, str]) -> FilledTemplate:
    full = _fill_variant(template.id, template.full, groups, data)
    return FilledTemplate(template, full, _fill_variant(f"{template.id}-small", template.small, groups, data))


def _fill_variant(
    name: str, variant: TemplateVariant, groups: Sequence[Sequence[Node]], data: dict[str, str]
) -> FilledVariant:
    choices = [variant.choose(nodes) for nodes in groups] or [variant.choose([])]
    nodes, missing = max(choices, key=lambda choice: (len(choice[0]), -len(choice[1])))
    return FilledVariant(variant, {**variant.request(name, nodes), **data}, missing)
