"""Directories and their tokens, as administrators manage them."""

import hashlib
import secrets
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Q, QuerySet

from apps.accounts import access, audit
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.directory.application import apply_rules
from apps.directory.models import Directory, DirectoryToken
from apps.identity.selectors import find_configuration

TOKEN_PREFIX = "fermi_scim_"


def list_directories(user: User) -> QuerySet[Directory]:
    """Return the directories with how many people and groups they have (administrator)."""
    access.require_administrator(user)
    people = Count("users", filter=Q(users__deleted_at=None), distinct=True)
    rows = Directory.objects.annotate(people=people, groups_=Count("groups", distinct=True))
    return rows.prefetch_related("tokens__created_by").order_by("name")


@transaction.atomic
def create_directory(user: User, *, name: str, provider: str, uid_attribute: str) -> tuple[Directory, dict[str, Any]]:
    """Add a directory (administrator) and return it with its first token, which is not stored. Raises ApiError."""
    _require_all_rights(user)
    check_row_limit("directories", Directory.objects.all())
    if provider and find_configuration(provider, enabled=None) is None:
        raise ApiError(400, "ROLE_RULE_PROVIDER", "provider", provider=provider)
    if uid_attribute and not provider:
        raise ApiError(400, "DIRECTORY_PROVIDER_MISSING", "provider")
    row = Directory(name=name, provider=provider, uid_attribute=uid_attribute, created_at=now(), created_by=user)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise ApiError(409, "DIRECTORY_NAME_TAKEN", "name", name=name) from None
    about = {"name": name, "provider": provider, "uid_attribute": uid_attribute}
    audit.record_event(user, "directory.create", row.pk, **about)
    return row, _make_token(user, row)


@transaction.atomic
def delete_directory(user: User, directory_id: str) -> None:
    """Delete a directory with its groups and tokens (administrator); the roles that its groups gave end. The accounts
    of its people stay as they are, and are nobody's. Raises ApiError 404."""
    _require_all_rights(user)
    row = _get_directory(directory_id)
    people = list(User.objects.filter(directory_user__directory=row))
    audit.record_event(user, "directory.delete", row.pk, name=row.name, people=len(people))
    row.delete()
    apply_rules(people, actor=user)


@transaction.atomic
def create_token(user: User, directory_id: str) -> dict[str, Any]:
    """Add a token to a directory (administrator), so that the one before can be revoked when the directory has it.
    Raises ApiError."""
    _require_all_rights(user)
    row = _get_directory(directory_id)
    check_row_limit("directory-tokens", row.tokens.all())
    return _make_token(user, row)


@transaction.atomic
def revoke_token(user: User, directory_id: str, token_id: str) -> None:
    """Delete a token of a directory (administrator). Raises ApiError 404."""
    access.require_administrator(user)
    if not DirectoryToken.objects.filter(directory=directory_id, pk=token_id).delete()[0]:
        raise ApiError(404, "NOT_FOUND")
    audit.record_event(user, "directory-token.revoke", token_id, directory=directory_id)


def find_token(token: str) -> DirectoryToken | None:
    """Return the stored token, compared in constant time, or None."""
    digest = _hash_token(token)
    found = DirectoryToken.objects.select_related("directory").filter(digest=digest).first()
    return found if found is not None and secrets.compare_digest(found.digest, digest) else None


def _get_directory(directory_id: str) -> Directory:
    row = Directory.objects.select_for_update(of=("self",)).filter(pk=directory_id).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return row


def _require_all_rights(user: User) -> None:
    """Raise ApiError 403 unless the request has all rights of an administrator: a directory decides over roles."""
    access.require_administrator(user)
    if user.token_rights and user.token_rights.narrow:
        raise ApiError(403, "TOKEN_TOO_NARROW", token=user.token_rights.name)


def _make_token(user: User, row: Directory) -> dict[str, Any]:
    token = f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}"
    made = DirectoryToken.objects.create(
        directory=row, digest=_hash_token(token), created_at=now(), created_by_id=user.pk
    )
    audit.record_event(user, "directory-token.create", made.pk, directory=row.pk)
    return {"id": made.pk, "token": token, "createdAt": made.created_at}


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
