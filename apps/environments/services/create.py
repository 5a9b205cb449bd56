"""Creates an environment: validated, stored in one transaction, and handed to the reconciler by a wake-up."""

import hashlib
from dataclasses import asdict
from typing import Any

import orjson
from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.environments import specs, transitions
from apps.environments.models import Hosted
from apps.environments.services import admission, lifecycle
from apps.environments.states import EnvironmentAction, EnvironmentState
from apps.environments.states.deadlines import DEADLINES
from apps.environments.validation import SPEC_COLUMNS, CreateRequest, ValidatedEnvironment, validate_environments


def create_environment(
    user: User,
    request: CreateRequest,
    *,
    key: str | None = None,
    task: str = "",
    afterwards: str = "",
    purpose: str = "",
    draft: ValidatedEnvironment | None = None,
) -> DevEnvironment:
    """Create an environment.

    `key`: the Idempotency-Key; with the same request it returns the environment that it returned before, with another
    one it is a conflict. `task`: the task it is created for, and `afterwards` (delete, stop, keep) what happens when
    that ends. `purpose`: see `Hosted`; no task is placed in such an environment. `draft`: the validation of this
    request, where it was made before: then no engine is asked, and this may be part of the caller's transaction. Raises
    ProblemsError with all problems.
    """
    digest = hashlib.sha256(orjson.dumps(asdict(request), option=orjson.OPT_SORT_KEYS)).hexdigest()
    if key and (before := _find_earlier(user, key, digest)):
        return before
    if draft is None:
        [draft] = validate_environments(user, [request])
    if draft.problems:
        raise ProblemsError(draft.problems)
    assert draft.project
    access.require_role(user, draft.project, Role.MEMBER)
    stored = {
        "idempotency_key": key or None,
        "request_hash": digest,
        "task": task,
        "afterwards": afterwards,
        "purpose": purpose,
    }
    try:
        with transaction.atomic():
            return _store_environment(user, draft, stored)
    except IntegrityError:
        if key and (before := _find_earlier(user, key, digest)):  # the same request came twice at the same time
            return before
        raise ApiError(409, "ENVIRONMENT_NAME_TAKEN", "name", name=request.name) from None


def clone_environment(user: User, environment: DevEnvironment, name: str) -> DevEnvironment:
    """Create an environment with the same spec and an empty disk."""
    hosted = lifecycle.get_hosted(environment)
    access.require_role(user, environment.project_id, Role.MEMBER)
    if hosted.purpose:
        raise ApiError(409, "ENVIRONMENT_ACTION_NOT_ALLOWED", action=EnvironmentAction.CLONE, status=hosted.state)
    spec = hosted.spec
    changes = {column: spec[column] for column in SPEC_COLUMNS} | {"idle_stop_minutes": hosted.idle_stop_minutes}
    asked = CreateRequest(
        template=hosted.template_id or "",
        project=environment.project_id,
        name=name,
        cluster=environment.cluster_id,
        zone=environment.zone_id,
        host=spec["host"],
        changes=changes,
    )
    return create_environment(user, asked)


def _find_earlier(user: User, key: str, digest: str) -> DevEnvironment | None:
    rows = Hosted.objects.select_related("environment").filter(made_by=user, idempotency_key=key)
    hosted = rows.first()
    if hosted is None:
        return None
    if hosted.request_hash != digest:
        raise ApiError(409, "IDEMPOTENCY_CONFLICT", "Idempotency-Key", key=key, made=hosted.pk)
    return hosted.environment


def _store_environment(user: User, draft: ValidatedEnvironment, stored: dict[str, Any]) -> DevEnvironment:
    assert draft.spec
    assert draft.project
    assert draft.cluster
    assert draft.zone
    spec = draft.spec
    admission.check_admission(draft.project, user, 1, spec.gpu_count)
    check_row_limit("environments", DevEnvironment.objects.filter(project=draft.project, gone_at=None))
    moment = now()
    environment = DevEnvironment.objects.create(
        pk=spec.id,
        name=spec.name,
        project=draft.project,
        owner=user,
        cluster=draft.cluster,
        zone=draft.zone,
        status=EnvironmentStatus.CREATING,
        host=spec.host,
        cordoned=bool(stored["purpose"]),
        **specs.build_columns(spec),
    )
    hosted = Hosted.objects.create(
        environment=environment,
        template=draft.template,
        spec=specs.dump_spec(spec),
        state=EnvironmentState.CREATING,
        state_since=moment,
        due_at=moment,
        deadline_at=moment + DEADLINES[EnvironmentState.CREATING],
        idle_stop_minutes=draft.idle_stop_minutes,
        active_at=moment,
        made_by=user,
        **stored,
    )
    admission.assign_gpus(hosted, draft.cluster.pk, spec, draft.gpus)
    params = {"by": user.username, "template": draft.template.name if draft.template else None}
    transitions.record_event(hosted, "ENVIRONMENT_MADE", params)
    told = {"name": spec.name, **({"task": stored["task"]} if stored["task"] else {})}
    audit.record_event(user, "environment.make", environment.pk, project=draft.project, **told)
    transitions.wake_environment(environment.pk)
    return environment
