"""Templates: the operators' catalogue, and each project's own."""

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit, secrets
from apps.accounts.models import Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.environments.models import Template
from apps.environments.validation import SPEC_COLUMNS, check_values
from fermi.jobs.spec import Problem


def create_template(user: User, project_id: str | None = None, **values: Any) -> Template:
    """Create a template (member). `project_id` None: for every project (administrator)."""
    if project_id is None:
        access.require_administrator(user)
    elif access.get_role(user, project_id) is None or not Project.objects.filter(pk=project_id).exists():
        raise ProblemsError([Problem("projectId", "PROJECT_UNKNOWN", {"project": project_id})])
    else:
        access.require_role(user, project_id, Role.MEMBER)
    check_row_limit("environment-templates", Template.objects.filter(project=project_id))
    template = Template(project_id=project_id, created_by=user)
    _set_values(template, values)
    return _save_template(user, template, "environment-template.create")


def change_template(user: User, template: Template, values: Mapping[str, Any]) -> Template:
    """Change a template; environments that were created from it stay as they are."""
    require_template_role(user, template)
    _set_values(template, values)
    return _save_template(user, template, "environment-template.change", fields=sorted(values))


@transaction.atomic
def delete_template(user: User, template: Template) -> None:
    """Delete a template; environments that were created from it stay."""
    require_template_role(user, template)
    audit.record_event(
        user, "environment-template.delete", template.pk, project=template.project_id, name=template.name
    )
    template.delete()


def require_template_role(user: User, template: Template) -> None:
    """Raise ApiError 403 or 404 unless the user may change the template."""
    if template.project_id is None:
        access.require_administrator(user)
    else:
        access.require_role(user, template.project_id, Role.MEMBER)


def check_template(template: Template) -> list[Problem]:
    """Return all problems with the template, wherever it is used."""
    found = check_values({name: getattr(template, name) for name in SPEC_COLUMNS})
    if template.project_id is not None:
        found += secrets.find_unknown_secrets(template.project_id, template.secret_env)
    return found


def _set_values(template: Template, values: Mapping[str, Any]) -> None:
    problems = []
    for name in values.keys() - {"cluster_id", "zone"}:
        setattr(template, name, values[name])
    if "cluster_id" in values:
        template.cluster_id = values["cluster_id"]
        if template.cluster_id and not Cluster.objects.filter(pk=template.cluster_id).exists():
            problems.append(Problem("clusterId", "CLUSTER_UNKNOWN", {"cluster": values["cluster_id"]}))
    if "zone" in values:
        named, zones = values["zone"], AvailabilityZone.objects.all()
        template.zone = (zones.filter(pk=named).first() or zones.filter(name=named).first()) if named else None
        if named and template.zone is None:
            problems.append(Problem("zone", "ZONE_UNKNOWN", {"zone": named}))
    if problems := [*problems, *check_template(template)]:
        raise ProblemsError(problems)


def _save_template(user: User, template: Template, action: str, **told: Any) -> Template:
    try:
        with transaction.atomic():
            template.save()
            audit.record_event(user, action, template.pk, project=template.project_id, name=template.name, **told)
    except IntegrityError:
        raise ApiError(409, "TEMPLATE_NAME_TAKEN", "name", name=template.name) from None
    return template
