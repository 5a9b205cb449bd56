"""Sets up providers, and links accounts to them. Administrators only."""

from collections.abc import Mapping
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.encryption import encrypt_value
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.identity import environment
from apps.identity.issuers import accept_issuer, list_people_values
from apps.identity.models import IdentityProvider, ProviderKind, ProviderRecheck
from apps.identity.provider_settings import check_settings
from apps.identity.selectors import find_configuration
from fermi.jobs.spec import Problem


def create_provider(
    user: User, *, provider_id: str, kind: str, name: str, secret: str = "", **values: Any
) -> IdentityProvider:
    """Set up a provider. Raises ProblemsError with all problems, ApiError 409 where the id is taken."""
    access.require_administrator(user)
    check_row_limit("identity-providers", IdentityProvider.objects.all())
    if provider_id in {one.id for one in environment.read_environment().providers}:
        raise ApiError(409, "IDENTITY_ID_TAKEN", "id", id=provider_id)
    if kind == ProviderKind.SAML:
        values = {**values, "settings": _read_metadata(values["settings"])}
    row = IdentityProvider(pk=provider_id, kind=kind, name=name, created_at=now(), created_by=user)
    _set_values(row, user, {**values, "secret": secret})
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            audit.record_event(user, "identity-provider.create", provider_id, kind=kind, name=name)
    except IntegrityError:
        raise ApiError(409, "IDENTITY_ID_TAKEN", "id", id=provider_id) from None
    return row


def change_provider(user: User, provider_id: str, values: Mapping[str, Any]) -> IdentityProvider:
    """Change a provider; its id and kind stay. A secret that is not given stays. Raises ApiError and ProblemsError."""
    access.require_administrator(user)
    found = find_configuration(provider_id, enabled=None)
    if found is not None and found.kind == ProviderKind.SAML and not found.readonly and "settings" in values:
        values = {**values, "settings": _read_metadata(values["settings"])}
    return _change_row(user, provider_id, values)


@transaction.atomic
def _change_row(user: User, provider_id: str, values: Mapping[str, Any]) -> IdentityProvider:
    row = _get_row(provider_id)
    _check_same_people(row, values)
    _set_values(row, user, values)
    row.save()
    audit.record_event(user, "identity-provider.change", row.pk, fields=sorted(values), enabled=row.enabled)
    return row


@transaction.atomic
def delete_provider(user: User, provider_id: str) -> None:
    """Delete a provider and the links to it: another one that gets its id may know other people by the same `uid`."""
    access.require_administrator(user)
    row = _get_row(provider_id)
    links, _ = SocialAccount.objects.filter(provider=row.pk).delete()
    audit.record_event(user, "identity-provider.delete", row.pk, name=row.name, links=links)
    ProviderRecheck.objects.filter(pk=row.pk).delete()
    row.delete()


def link_account(user: User, provider_id: str, username: str, uid: str) -> dict[str, Any]:
    """Let whom a provider knows as `uid` sign in to an existing account. Raises ApiError."""
    access.require_administrator(user)
    configuration = find_configuration(provider_id, enabled=None)
    if configuration is None:
        raise ApiError(404, "NOT_FOUND")
    if not accept_issuer(configuration):
        raise ApiError(409, "IDENTITY_ISSUER_CHANGED")
    person = User.objects.filter(username=username, service_project=None).first()
    if person is None:
        raise ApiError(400, "USER_UNKNOWN", "username", username=username)
    try:
        with transaction.atomic():
            SocialAccount.objects.create(user=person, provider=provider_id, uid=uid, extra_data={})
            audit.record_event(user, "identity-provider.link", provider_id, username=username, uid=uid)
    except IntegrityError:
        raise ApiError(409, "IDENTITY_UID_TAKEN", "uid", uid=uid) from None
    return {"username": username, "uid": uid}


@transaction.atomic
def delete_links(user: User, provider_id: str) -> int:
    """Delete all links of accounts to a provider, and return how many there were. Raises ApiError 404."""
    access.require_administrator(user)
    if find_configuration(provider_id, enabled=None) is None:
        raise ApiError(404, "NOT_FOUND")
    count = SocialAccount.objects.filter(provider=provider_id).count()
    SocialAccount.objects.filter(provider=provider_id).delete()
    audit.record_event(user, "identity-provider.unlink", provider_id, links=count)
    return count


def _check_same_people(row: IdentityProvider, values: Mapping[str, Any]) -> None:
    """Raise ApiError 409 where accounts are linked by what another issuer or claim gives to other people."""
    before = list_people_values(row.kind, row.client_id, row.settings)
    after = list_people_values(row.kind, values.get("client_id", row.client_id), values.get("settings", row.settings))
    for field in before:
        if before[field] == after[field]:
            continue
        if count := SocialAccount.objects.filter(provider=row.pk).count():
            raise ApiError(409, "IDENTITY_LINKED", field, id=row.pk, count=count)


def _read_metadata(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return SAML's settings with what the metadata says. It may be fetched: call it before the transaction begins."""
    from apps.identity.saml_metadata import expand_settings  # with xmlsec: for platforms that have such a provider

    return expand_settings(settings)


def _get_row(provider_id: str) -> IdentityProvider:
    """Return the row. Raises ApiError 404; 409 for a provider of the environment, which is changed there."""
    if provider_id in {one.id for one in environment.read_environment().providers}:
        raise ApiError(409, "IDENTITY_FROM_ENVIRONMENT", id=provider_id)
    row = IdentityProvider.objects.select_for_update(of=("self",)).filter(pk=provider_id).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return row


def _set_values(row: IdentityProvider, user: User, values: Mapping[str, Any]) -> None:
    for key in ("name", "client_id", "settings", "enabled"):
        if key in values:
            setattr(row, key, values[key])
    if secret := values.get("secret"):
        row.secret = encrypt_value(secret)
    row.updated_at, row.updated_by = now(), user
    if problems := check_settings(row.kind, row.client_id, row.settings):
        raise ProblemsError([Problem(field, code) for field, code in problems])
