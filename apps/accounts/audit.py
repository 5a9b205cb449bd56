"""The audit trail. Services record each action in the transaction that carries it out."""

from collections.abc import Iterable
from typing import Any

from apps.accounts.access import AnyUser
from apps.accounts.models import AuditEvent, Project
from apps.common import request_id


def record_event(
    actor: AnyUser | None, action: str, target: str, *, project: Project | str | None = None, **data: Any
) -> None:
    """Store one event. `action` is `<thing>.<verb>`, `target` the id of what was acted on, `data` the details. `actor`
    None means the platform itself. Never put a secret in `data`."""
    event = _make_event(actor, action, target, project, data)
    event.save(force_insert=True)


def record_events(actor: AnyUser | None, events: Iterable[dict[str, Any]]) -> None:
    """Store many events in few queries: each has the arguments of `record_event`. For events that no receiver of the
    signal that a row is stored has to know."""
    rows = [_make_event(actor, one.pop("action"), one.pop("target"), one.pop("project", None), one) for one in events]
    AuditEvent.objects.bulk_create(rows)


def _make_event(
    actor: AnyUser | None, action: str, target: str, project: Project | str | None, data: dict[str, Any]
) -> AuditEvent:
    rights = getattr(actor, "token_rights", None)
    event = AuditEvent(
        actor_id=actor.pk if actor else None,
        project_id=project.pk if isinstance(project, Project) else project,
        action=action,
        target=target,
        data=data,
        request_id=request_id.get_request_id(),
        token=rights.token if rights else "",
        token_name=rights.name if rights else "",
        address=request_id.get_client_address(),
    )
    event.token_has_scopes = rights is not None and rights.scopes is not None
    return event
