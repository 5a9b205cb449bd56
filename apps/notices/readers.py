"""Who may be told of an incident, by the rights that they have now."""

from django.db.models import QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.notices.models import Incident, Item


def select_items(user: User) -> QuerySet[Item]:
    """Return the user's items, without those of projects where the user no longer has a role."""
    return access.filter_visible(Item.objects.filter(user=user), user, "incident__project", shared=True)


def may_read(user: User | None, incident: Incident) -> bool:
    """Return True if a person may be told of the incident: active, and with a role in its project."""
    if user is None or not user.is_active:
        return False
    return incident.project_id is None or access.get_role(user, incident.project_id) is not None
