"""Changes of projects, members, saved views and sign-in links."""

import hashlib
import secrets
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit, service_accounts
from apps.accounts.models import (
    AuditEvent,
    Membership,
    MembershipSource,
    Project,
    Role,
    SavedView,
    SignInLink,
    User,
)
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit

SIGN_IN_LINK_LIFETIME = timedelta(minutes=30)


def save_view(user: User, section: str, name: str, query: str) -> dict[str, Any]:
    """Save a list's settings under a name, and replace those of the same section and name."""
    mine = SavedView.objects.filter(user=user)
    if not mine.filter(section=section, name=name).exists():
        check_row_limit("saved-views", mine)
    view, _ = mine.update_or_create(user=user, section=section, name=name, defaults={"query": query})
    return {"id": view.pk, "section": section, "name": name, "query": query}


def delete_saved_view(user: User, view_id: str) -> None:
    if not SavedView.objects.filter(user=user, pk=view_id).delete()[0]:
        raise ApiError(404, "NOT_FOUND")


def create_project(user: User, name: str) -> Project:
    """Create a project (administrator only: maintainers may name paths and hosts, so no user may become one by creating
    a project)."""
    access.require_administrator(user)
    try:
        with transaction.atomic():
            project = Project.objects.create(name=name)
            audit.record_event(user, "project.create", project.id, project=project, name=name)
    except IntegrityError:
        raise ApiError(409, "PROJECT_NAME_TAKEN", "name", name=name) from None
    return project


def rename_project(user: User, project: Project, name: str) -> None:
    access.require_role(user, project, Role.MAINTAINER)
    try:
        with transaction.atomic():
            Project.objects.filter(pk=project.pk).update(name=name)
            audit.record_event(user, "project.rename", project.id, project=project, before=project.name, after=name)
    except IntegrityError:
        raise ApiError(409, "PROJECT_NAME_TAKEN", "name", name=name) from None
    project.name = name


@transaction.atomic
def delete_project(user: User, project: Project) -> None:
    """Delete an empty project (administrator). Environments, tasks and data have to be deleted before; models with
    `GOES_WITH_PROJECT` go with it, its service accounts are disabled, and the audit trail stays. Raises ApiError 409
    PROJECT_NOT_EMPTY."""
    access.require_administrator(user)
    for relation in Project._meta.related_objects:
        model = relation.related_model
        if model in (AuditEvent, User) or not isinstance(model, type) or getattr(model, "GOES_WITH_PROJECT", False):
            continue
        rows = model._default_manager.filter(**{relation.field.name: project})
        if rows.exists():
            what = str(model._meta.verbose_name_plural)
            raise ApiError(409, "PROJECT_NOT_EMPTY", what=what, count=rows.count())
    service_accounts.disable_accounts(project)
    audit.record_event(user, "project.delete", project.id, name=project.name)
    project.delete()


@transaction.atomic
def add_member(user: User, project: Project, username: str, role: str) -> dict[str, Any]:
    access.require_role(user, project, Role.MAINTAINER)
    member = User.objects.filter(username=username, service_project=None).first()
    if member is None:
        raise ApiError(400, "USER_UNKNOWN", "username", username=username)
    _, created = Membership.objects.get_or_create(project=project, user=member, defaults={"role": role})
    if not created:
        raise ApiError(409, "ALREADY_MEMBER", "username", username=username)
    audit.record_event(user, "member.add", username, project=project, role=role)
    return {"username": username, "role": role}


@transaction.atomic
def change_role(user: User, project: Project, username: str, role: str) -> dict[str, Any]:
    access.require_role(user, project, Role.MAINTAINER)
    found = Membership.objects.filter(project=project, user__username=username, user__service_project=None)
    if not found.update(role=role, source=MembershipSource.PERSON):
        raise ApiError(404, "NOT_FOUND")
    audit.record_event(user, "member.change", username, project=project, role=role)
    return {"username": username, "role": role}


@transaction.atomic
def remove_member(user: User, project: Project, username: str) -> None:
    access.require_role(user, project, Role.MAINTAINER)
    people = Membership.objects.filter(project=project, user__service_project=None)
    if not people.filter(user__username=username).delete()[0]:
        raise ApiError(404, "NOT_FOUND")
    audit.record_event(user, "member.remove", username, project=project)


def create_sign_in_link(user: User, lifetime: timedelta = SIGN_IN_LINK_LIFETIME) -> str:
    """Return the path of a page that signs `user` in once, within `lifetime`."""
    secret = secrets.token_urlsafe(32)
    SignInLink.objects.filter(expires_at__lt=now()).delete()
    SignInLink.objects.create(digest=_hash_secret(secret), user=user, expires_at=now() + lifetime)
    return f"/auth/link/{secret}"


@transaction.atomic
def redeem_sign_in_link(secret: str) -> User | None:
    """Return the link's user for the first request in time, and None for every other one."""
    link = SignInLink.objects.filter(digest=_hash_secret(secret), used_at=None, expires_at__gt=now())
    if not link.update(used_at=now()):
        return None
    user = User.objects.get(signinlink__digest=_hash_secret(secret))
    if not user.is_active or user.service_project_id:
        return None
    audit.record_event(user, "user.sign-in-link", user.username)
    return user


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
