"""Whose people the links of a provider mean, so that another issuer under the same id opens nobody's account.

A link says who somebody is by the provider's id and `uid` alone. A provider of the platform's environment may name
another issuer after a restart, whose `uid`s are other people's. So the issuer is stored before the first link.
"""

import json
from collections.abc import Mapping
from typing import Any

from allauth.socialaccount.models import SocialAccount

from apps.identity.configuration import ProviderConfiguration
from apps.identity.models import LinkedIssuer, ProviderKind

PEOPLE_SETTINGS: Mapping[str, str] = {
    "server_url": "",
    "uid_claim": "sub",
    "tenant_key": "",
    "corp_id": "",
    "entity_id": "",
    "attributes.uid": "",
}
"""The settings that say whom a `uid` means, with their defaults."""


def list_people_values(kind: str, client_id: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what says whom a provider's `uid`s mean, by field of the API."""
    found = {f"settings.{path}": _read_setting(settings, path) or default for path, default in PEOPLE_SETTINGS.items()}
    if kind == ProviderKind.WECOM:  # its client is the organisation
        found["clientId"] = client_id
    return found


def accept_issuer(configuration: ProviderConfiguration) -> bool:
    """Return False where accounts are linked to a provider of this id that had another issuer. Otherwise the links are
    this one's from now on."""
    issuer = _describe_issuer(configuration)
    row = LinkedIssuer.objects.filter(pk=configuration.id).first()
    if row is not None and row.issuer == issuer:
        return True
    if row is not None and SocialAccount.objects.filter(provider=configuration.id).exists():
        return False
    LinkedIssuer.objects.update_or_create(pk=configuration.id, defaults={"issuer": issuer})
    return True


def _read_setting(settings: Mapping[str, Any], path: str) -> str:
    value: Any = settings
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return str(value or "").rstrip("/")


def _describe_issuer(configuration: ProviderConfiguration) -> str:
    values = list_people_values(configuration.kind, configuration.client_id, configuration.settings)
    return json.dumps({"kind": str(configuration.kind), **values}, sort_keys=True)
