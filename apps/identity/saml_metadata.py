"""Reads a provider's metadata, when its settings are saved and each day from then on."""

import logging
from collections.abc import Mapping
from typing import Any

import requests
from django.db import transaction
from lxml.etree import LxmlError
from onelogin.saml2.errors import OneLogin_Saml2_Error
from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser

from apps.accounts import audit
from apps.common.errors import ProblemsError
from apps.identity.http import ProviderSession
from apps.identity.models import IdentityProvider, ProviderKind
from apps.identity.saml_settings import CHECKS, MAX_METADATA_TEXT, REQUIRED, list_problems
from fermi.jobs.spec import Problem

log = logging.getLogger(__name__)

MAX_METADATA_BYTES = 1 << 20


def read_metadata(xml: bytes, entity_id: str | None = None) -> dict[str, str]:
    """Return `entity_id`, `sso_url` and `x509` of a provider's metadata, of the entity `entity_id` where there are
    several. Raises ValueError for metadata that is too large, is not XML, or lacks one of them."""
    if len(xml) > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata has more than {MAX_METADATA_BYTES} bytes")
    try:
        found = OneLogin_Saml2_IdPMetadataParser.parse(xml, entity_id=entity_id).get("idp", {})
    except (OneLogin_Saml2_Error, LxmlError, ValueError, SyntaxError) as error:
        raise ValueError(f"the metadata cannot be read: {str(error)[:200]}") from error
    certificates = found.get("x509certMulti", {}).get("signing") or [found.get("x509cert", "")]
    settings = {
        "entity_id": found.get("entityId", ""),
        "sso_url": found.get("singleSignOnService", {}).get("url", ""),
        "x509": "\n".join(
            f"-----BEGIN CERTIFICATE-----\n{one}\n-----END CERTIFICATE-----" for one in certificates if one
        ),
    }
    if missing := [name for name, value in settings.items() if not value]:
        raise ValueError(f"the metadata has no {missing[0]}")
    return settings


def expand_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with what the metadata says, which they contain or name the address of. Raises ProblemsError.
    Call it outside of transactions: it may fetch."""
    expanded = dict(settings)
    text, url = expanded.pop("metadata", ""), expanded.get("metadata_url", "")
    if url and CHECKS["metadata_url"](url):
        return expanded  # the check of all settings names it
    field = "settings.metadata" if text else "settings.metadata_url"
    if text and url:
        raise ProblemsError([Problem(field, "IDENTITY_METADATA_TWICE")])
    if text and (not isinstance(text, str) or len(text) > MAX_METADATA_TEXT):
        raise ProblemsError([Problem(field, "IDENTITY_METADATA_LARGE", {"most": MAX_METADATA_TEXT})])
    try:
        if text:
            expanded.update(read_metadata(text.encode(), _get_entity(expanded)))
        elif url:
            expanded.update(fetch_metadata(url, _get_entity(expanded)))
    except requests.RequestException as error:
        if all(expanded.get(key) for key in REQUIRED):
            log.warning("the metadata at %s cannot be fetched: what was read before stays: %s", url, str(error)[:200])
            return expanded
        raise ProblemsError([Problem(field, "IDENTITY_METADATA_SILENT", {"reason": str(error)[:200]})]) from error
    except ValueError as error:
        raise ProblemsError([Problem(field, "IDENTITY_METADATA_BROKEN", {"reason": str(error)})]) from error
    return expanded


def fetch_metadata(url: str, entity_id: str | None) -> dict[str, str]:
    """Return what the metadata at an address says. Raises requests.RequestException and ValueError."""
    with ProviderSession() as session:
        response = session.get(url)
        response.raise_for_status()
        return read_metadata(response.content, entity_id)


def refresh_metadata() -> int:
    """Read the metadata of all providers that have its address, and return how many changed. One that cannot be read,
    or that is suddenly about another provider, is logged, and what was read before stays."""
    changed = 0
    for row in IdentityProvider.objects.filter(kind=ProviderKind.SAML, enabled=True).order_by("pk"):
        url = row.settings.get("metadata_url")
        if not url:
            continue
        try:
            found = fetch_metadata(url, row.settings["entity_id"])
            if found["entity_id"] != row.settings["entity_id"] or list_problems(found):
                raise ValueError("it is about another provider, or has no usable address or certificate")
        except (requests.RequestException, ValueError, KeyError) as error:
            log.error("the metadata of the identity provider %s cannot be read: %s", row.pk, str(error)[:300])
            continue
        changed += _store_metadata(row, url, found)
    return changed


def _store_metadata(row: IdentityProvider, url: str, found: Mapping[str, str]) -> bool:
    """Store what was read, unless an administrator has changed the address meanwhile. Return whether it was new."""
    with transaction.atomic():
        fresh = IdentityProvider.objects.select_for_update(of=("self",)).filter(pk=row.pk).first()
        if fresh is None or fresh.settings.get("metadata_url") != url:
            return False
        if all(fresh.settings.get(key) == found[key] for key in REQUIRED):
            return False
        fresh.settings = {**fresh.settings, **found}
        fresh.save(update_fields=["settings"])
        changed = [key for key in REQUIRED if row.settings.get(key) != found[key]]
        audit.record_event(None, "identity-provider.change", row.pk, fields=changed, metadata=url)
    log.warning("the identity provider %s has new metadata: it is used from now on", row.pk)
    return True


def _get_entity(settings: Mapping[str, Any]) -> str | None:
    """Return the entity that the settings name, if the metadata has to be about it."""
    value = settings.get("entity_id")
    return value if isinstance(value, str) and value and not CHECKS["entity_id"](value) else None
