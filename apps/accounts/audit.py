"""The audit trail. Services record each action in the transaction that carries it out."""

from typing import Any

from apps.accounts.access import AnyUser
from apps.accounts.models import AuditEvent, Project
from apps.common import request_id


def record_event(
    actor: AnyUser | None, action: str, target: str, *, project: Project | str | None = None, **data: Any
) -> None:
    """Store one event. `action` is `<thing>.<verb>`, `target` the id of what was acted on, `data` the details. `actor`
    None means the platform itself. Never put a secret in `data`."""
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
    event.save(force_insert=True)
