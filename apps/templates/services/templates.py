"""Saves requests as templates, and creates tasks from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, models, transaction

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.catalog.models import DatasetVersion
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.templates import placeholders
from apps.templates.models import SavedTemplate
from apps.training import public
from fermi.jobs import credentials
from fermi.jobs.spec import Problem
from fermi.planning.request import parse_request

_CHANGED_COLUMNS = ("name", "description", "request", "parameters", "version", "updated_at")
"""Columns that a change writes; the others may be written by tasks meanwhile."""


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """A request with values and changes, and what is wrong with the values."""

    request: Mapping[str, Any]
    problems: Sequence[Problem]


def create_template(
    user: User,
    *,
    name: str,
    description: str = "",
    project_id: str | None = None,
    task_id: str | None = None,
    request: Mapping[str, Any] | None = None,
    parameters: Sequence[Mapping[str, Any]] = (),
) -> SavedTemplate:
    """Save a template of a project (member), or of the platform (`project_id` None without a task; administrator), from
    `request` or from the request of a task. Raises ProblemsError with all problems, and ApiError."""
    if (task_id is None) == (request is None):
        raise ProblemsError([Problem("request", "TEMPLATE_NEEDS_ONE_SOURCE")])
    if task_id is not None:
        task = access.get_object(public.Task.objects.all(), user, task_id, Role.MEMBER)
        project_id = project_id or task.project_id
        if project_id != task.project_id:
            raise ProblemsError([Problem("projectId", "TEMPLATE_OF_OTHER_PROJECT", {"task": task_id})])
        request = {
            key: value for key, value in public.clone_request(user, task_id)["request"].items() if key != "after"
        }
    _require_creator(user, project_id)
    template = SavedTemplate(project_id=project_id, created_by=user, created_at=now(), name=name)
    check_row_limit("saved-templates", SavedTemplate.objects.filter(project=project_id))
    _set_values(template, {"description": description, "request": request, "parameters": list(parameters)})
    return _save_template(user, template, "saved-template.create")


def change_template(user: User, template: SavedTemplate, values: Mapping[str, Any]) -> SavedTemplate:
    """Change a template (a maintainer, or whoever created it; of the platform an administrator). Tasks that were
    created from it stay as they are; schedules create from it as it is now. Raises ProblemsError and ApiError."""
    require_template_role(user, template)
    _set_values(template, values)
    template.version += 1
    return _save_template(user, template, "saved-template.change", _CHANGED_COLUMNS, fields=sorted(values))


@transaction.atomic
def delete_template(user: User, template: SavedTemplate) -> None:
    """Delete a template. Raises ApiError 409 while a schedule creates from it."""
    require_template_role(user, template)
    if schedule := template.schedules.values_list("name", flat=True).first():
        raise ApiError(409, "TEMPLATE_IN_USE", schedule=schedule)
    audit.record_event(user, "saved-template.delete", template.pk, project=template.project_id, name=template.name)
    try:
        template.delete()
    except models.RestrictedError:  # a schedule was made at the same moment
        raise ApiError(409, "TEMPLATE_IN_USE", schedule="–") from None


def may_change(user: User, template: SavedTemplate) -> bool:
    """Return True if the user may change the template."""
    if template.project_id is None:
        return bool(user.is_superuser)
    role = access.get_role(user, template.project_id)
    return role is Role.MAINTAINER or (role is Role.MEMBER and template.created_by_id == user.pk)


def require_template_role(user: User, template: SavedTemplate) -> None:
    """Raise ApiError 403 unless the user may change the template."""
    if not may_change(user, template):
        raise ApiError(403, "FORBIDDEN")


def get_template(user: User, key: str) -> SavedTemplate:
    """Return a template that the user may see. Raises ApiError 404."""
    return access.get_object(SavedTemplate.objects.select_related("created_by"), user, key, shared=True)


def create_task(
    user: User,
    template: SavedTemplate,
    *,
    values: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    project_id: str | None = None,
    key: str | None = None,
) -> public.Task:
    """Create a task from a template. `overrides`: changes of the request; `key`: as of the creation of any task. Raises
    ProblemsError with all problems, those of a field that is a parameter by the parameter's name, and ApiError."""
    filled = fill_template(template, values, overrides or {}, project_id)
    if filled.problems:
        raise ProblemsError(_collect_problems(user, template, filled))
    try:
        task = public.submit_request(user, filled.request, key)
    except ProblemsError as error:
        raise ProblemsError(placeholders.name_parameters(error.problems, template.request)) from None
    record_use(template.pk, task.pk)
    return task


def record_use(template_id: str, task_id: str) -> None:
    """Store that a task was created from a template."""
    SavedTemplate.objects.filter(pk=template_id).update(last_used_at=now(), last_task=task_id)


def preview_task(
    user: User,
    template: SavedTemplate,
    *,
    values: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    project_id: str | None = None,
) -> tuple[FilledRequest, public.TaskPreview | None]:
    """Return the filled request with all of its problems, and the preview of its task where the values are complete.
    Creates nothing."""
    filled = fill_template(template, values, overrides or {}, project_id)
    if filled.problems:
        return filled, None
    preview = public.preview_task(user, parse_request(filled.request))
    return FilledRequest(filled.request, placeholders.name_parameters(preview.problems, template.request)), preview


def fill_template(
    template: SavedTemplate, values: Mapping[str, Any], overrides: Mapping[str, Any], project_id: str | None = None
) -> FilledRequest:
    """Return the request of a template with values and changes. A project's template creates tasks of that project
    alone."""
    found, problems = placeholders.read_values(template.parameters, values)
    versions = [one["name"] for one in template.parameters if one["type"] == placeholders.DATASET_VERSION]
    if versions:
        rows = DatasetVersion.objects.filter(pk__in=[found[name] for name in versions if name in found])
        datasets = dict(rows.values_list("pk", "dataset_id"))
        for name in versions:
            if name in found:  # one that is not there is a problem of the request
                found[f"{name}{placeholders.DATASET_PART}"] = datasets.get(found[name], "")
    request = placeholders.merge_request(placeholders.fill_request(template.request, found), overrides)
    if project := template.project_id or project_id:
        request["projectId"] = project
    return FilledRequest(request, problems)


def _collect_problems(user: User, template: SavedTemplate, filled: FilledRequest) -> list[Problem]:
    """Return the problems of the values together with those of the rest of the request."""
    open_fields = {problem.field for problem in filled.problems}
    draft = public.draft_request(user, filled.request, public.PREVIEW_TASK_ID)
    rest = placeholders.name_parameters(draft.problems, template.request)
    return [*filled.problems, *(problem for problem in rest if problem.field not in open_fields)]


def _require_creator(user: User, project_id: str | None) -> None:
    if project_id is None:
        access.require_administrator(user)
    elif access.get_role(user, project_id) is None or not Project.objects.filter(pk=project_id).exists():
        raise ProblemsError([Problem("projectId", "PROJECT_UNKNOWN", {"project": project_id})])
    else:
        access.require_role(user, project_id, Role.MEMBER)


def _set_values(template: SavedTemplate, values: Mapping[str, Any]) -> None:
    for name in values.keys() - {"parameters", "request"}:
        setattr(template, name, values[name])
    request = dict(values.get("request") or template.request or {})
    parameters, problems = [], []
    for number, given in enumerate(values.get("parameters", template.parameters)):
        parameter = {name: value for name, value in given.items() if name != "path" and value is not None}
        if path := given.get("path"):
            try:
                request, parameter = _place_parameter(request, path, parameter)
            except LookupError:
                problems.append(Problem(f"parameters.{number}.path", "PARAMETER_PATH_UNKNOWN", {"path": path}))
        parameters.append(parameter)
    template.request, template.parameters = request, parameters
    template.updated_at = now()
    problems += placeholders.find_problems(request, parameters) if not problems else []
    env = request.get("env")
    for name, value in env.items() if isinstance(env, Mapping) else ():
        if isinstance(value, str) and credentials.looks_secret(str(name), value):
            problems.append(Problem(f"request.env.{name}", "TEMPLATE_WITH_SECRET", {"name": name}))
    if problems:
        raise ProblemsError(problems)


def _place_parameter(
    request: Mapping[str, Any], path: str, parameter: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request with the parameter at `path`, and the parameter, whose default is what was there."""
    name = parameter["name"]
    request, found = placeholders.place_parameter(request, path, name)
    if path == "datasetVersionId" and parameter["type"] == placeholders.DATASET_VERSION:
        request = {**request, "datasetId": f"{{{{{name}{placeholders.DATASET_PART}}}}}"}
    if "default" not in parameter and found is not None and not any(placeholders.find_places(found)):
        parameter = {**parameter, "default": found}
    return dict(request), parameter


def _save_template(
    user: User, template: SavedTemplate, action: str, columns: Sequence[str] | None = None, **told: Any
) -> SavedTemplate:
    """Save a template, only its `columns` where there are some. Raises ApiError 409 where the name is taken."""
    try:
        with transaction.atomic():
            template.save(update_fields=columns)
            audit.record_event(user, action, template.pk, project=template.project_id, name=template.name, **told)
    except IntegrityError:
        raise ApiError(409, "TEMPLATE_NAME_TAKEN", "name", name=template.name) from None
    return template
