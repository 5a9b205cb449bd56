"""Lists the use cases that are ready to be submitted, each with environments of the user that it could use."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from apps.accounts import access
from apps.accounts.models import User
from apps.catalog.models import DatasetVersion, Model, VersionStatus
from apps.clusters import selectors as clusters
from apps.clusters.models import EnvironmentStatus
from apps.common.errors import ApiError
from apps.common.texts import get_request_language
from apps.training.presenters import task_presenter
from fermi.jobs.spec import Node
from fermi.planning import plugins
from fermi.planning.templates import TaskTemplate, TemplateVariant, load_templates

MAX_ENVIRONMENTS = 1000


def list_templates(user: User) -> list[dict[str, Any]]:
    """Return all templates as the API answers them, in the language of the request."""
    groups, data = _group_environments(user), _choose_data(user)
    return [_serialize_template(template, groups, data) for template in load_templates().values()]


def find_template(user: User, key: str) -> dict[str, Any]:
    """Return the template. Raises ApiError 404."""
    if key not in load_templates():
        raise ApiError(404, "NOT_FOUND")
    return _serialize_template(load_templates()[key], _group_environments(user), _choose_data(user))


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


def _serialize_template(
    template: TaskTemplate, groups: Sequence[Sequence[Node]], data: dict[str, str]
) -> dict[str, Any]:
    return {
        "id": template.id,
        **template.said(get_request_language()),
        "full": _serialize_variant(template.id, template.full, groups, data),
        "small": _serialize_variant(f"{template.id}-small", template.small, groups, data),
    }


def _serialize_variant(
    name: str, variant: TemplateVariant, groups: Sequence[Sequence[Node]], data: dict[str, str]
) -> dict[str, Any]:
    choices = [variant.choose(nodes) for nodes in groups] or [variant.choose([])]
    nodes, missing = max(choices, key=lambda choice: (len(choice[0]), -len(choice[1])))
    return {
        "nodes": variant.nodes,
        "gpusPerNode": variant.gpus_per_node,
        "gpuType": variant.gpu_type,
        "sameZone": variant.same_zone,
        "framework": variant.framework,
        "frameworkLabel": plugins.get_framework(variant.framework).info.label,
        "request": {**variant.request(name, nodes), **data},
        "missing": [task_presenter.serialize_warning(one.code, one.params) for one in missing],
    }
