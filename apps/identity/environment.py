"""Providers that the platform's environment names: FERMI_IDENTITY_PROVIDERS, or the short form FERMI_OIDC_….

A wrong setting stops nothing: it is logged with the variable's name, shown to administrators, and left out.
"""

import json
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from apps.identity import provider_settings
from apps.identity.configuration import ProviderConfiguration
from apps.identity.models import ID_PATTERN, ProviderKind
from apps.identity.starts import STARTS

log = logging.getLogger(__name__)

LIST_VARIABLE = "FERMI_IDENTITY_PROVIDERS"
SHORT_VARIABLES = ("FERMI_OIDC_URL", "FERMI_OIDC_CLIENT_ID", "FERMI_OIDC_CLIENT_SECRET", "FERMI_OIDC_NAME")
SHORT_ID = "sso"
LDAP_VARIABLES = ("FERMI_LDAP_URI", "FERMI_LDAP_NAME")
LDAP_ID = "ldap"
"""Of the one directory, which `server.ldap_settings` reads; here it is only named, for rules and lists."""
MAX_PROVIDERS = 50
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class EnvironmentProviders:
    """What the environment names, and a sentence for each setting that is wrong."""

    providers: tuple[ProviderConfiguration, ...] = ()
    errors: tuple[str, ...] = ()


def read_environment() -> EnvironmentProviders:
    """Return the providers of this process's environment, which is read once for each value of its variables."""
    return _read_values(tuple(os.environ.get(name, "") for name in (LIST_VARIABLE, *SHORT_VARIABLES, *LDAP_VARIABLES)))


@lru_cache(maxsize=8)
def _read_values(values: tuple[str, ...]) -> EnvironmentProviders:
    errors: list[str] = []
    found: dict[str, ProviderConfiguration] = {}
    uri, name = values[-2:]
    if uri:
        found[LDAP_ID] = ProviderConfiguration(
            id=LDAP_ID,
            kind=ProviderKind.LDAP.value,
            name=(name or "LDAP")[:40],
            settings={"server_url": uri},
            readonly=True,
        )
    for label, entry in [*_read_short_form(values[1:5], errors), *_read_list(values[0], errors)]:
        try:
            provider = _parse_entry(label, entry)
        except ValueError as error:
            errors.append(str(error))
            continue
        if provider.id in found:
            errors.append(f"{label}: the id {provider.id} is there twice; the first one counts.")
        else:
            found[provider.id] = provider
    for sentence in errors:
        log.error(sentence)
    return EnvironmentProviders(tuple(found.values()), tuple(errors))


def _read_short_form(values: tuple[str, ...], errors: list[str]) -> list[tuple[str, Any]]:
    url, client_id, secret, name = values
    if not any((url, client_id, secret)):
        return []
    for variable, value in zip(SHORT_VARIABLES[:2], (url, client_id), strict=True):
        if not value:
            errors.append(f"{variable} is missing: sign-in by OpenID Connect needs it beside the other FERMI_OIDC_….")
            return []
    entry = {
        "id": SHORT_ID,
        "kind": ProviderKind.OPENID_CONNECT.value,
        "name": name or "SSO",
        "client_id": client_id,
        "secret": secret,
        "settings": {"server_url": url},
    }
    return [(SHORT_VARIABLES[0], entry)]


def _read_list(value: str, errors: list[str]) -> list[tuple[str, Any]]:
    """Return the entries with the label that errors name them by."""
    if not value.strip():
        return []
    try:
        data = _parse_text(value)
    except (OSError, ValueError) as error:
        errors.append(f"{LIST_VARIABLE} must be JSON, or the path of a JSON or TOML file: {error}")
        return []
    if isinstance(data, Mapping):
        data = data.get("providers")
    if not isinstance(data, list):
        errors.append(f"{LIST_VARIABLE} must be a list of providers, or an object with the list `providers`.")
        return []
    if len(data) > MAX_PROVIDERS:
        errors.append(f"{LIST_VARIABLE} has {len(data)} providers; only the first {MAX_PROVIDERS} count.")
    return [(f"{LIST_VARIABLE}, provider {number}", one) for number, one in enumerate(data[:MAX_PROVIDERS], 1)]


def _parse_text(value: str) -> Any:
    """Return the decoded value: JSON itself, or the file that it names. Raises OSError and ValueError."""
    if value.lstrip()[0] in "[{":
        return json.loads(value)
    path = Path(value.strip())
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path} has more than {MAX_FILE_BYTES} bytes.")
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


def _parse_entry(label: str, entry: Any) -> ProviderConfiguration:
    """Return the provider. Raises ValueError with a sentence that names the variable and the field."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{label} must be an object, not {type(entry).__name__}.")
    known = {"id", "kind", "name", "client_id", "secret", "secret_file", "settings", "enabled"}
    if unknown := sorted(str(key) for key in entry if key not in known):
        raise ValueError(f"{label}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}.")
    texts = {key: entry.get(key, "") for key in ("id", "kind", "name", "client_id", "secret", "secret_file")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{label}: {key} must be a text.")
    if not re.fullmatch(ID_PATTERN, texts["id"]):
        raise ValueError(f"{label}: id must be lower-case letters, digits and hyphens, not {texts['id']!r}.")
    kind = texts["kind"] or ProviderKind.OPENID_CONNECT.value
    if kind not in STARTS:
        raise ValueError(f"{label}: kind must be one of {', '.join(STARTS)}, not {kind!r}.")
    settings = entry.get("settings", {})
    if not isinstance(settings, Mapping):
        raise ValueError(f"{label}: settings must be an object.")
    if kind == ProviderKind.SAML:
        settings = _read_saml_metadata(label, settings)
    if problems := provider_settings.check_settings(kind, texts["client_id"], settings):
        field, code = problems[0]
        raise ValueError(f"{label}: {field} is wrong ({code}).")
    return ProviderConfiguration(
        id=texts["id"],
        kind=kind,
        name=(texts["name"] or texts["id"])[:40],
        client_id=texts["client_id"],
        secret=texts["secret"] or _read_file(label, "secret_file", texts["secret_file"])[:10_000],
        settings=dict(settings),
        enabled=entry.get("enabled", True) is not False,
        readonly=True,
    )


def _read_saml_metadata(label: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with what `metadata`, or the file `metadata_file`, says. Raises ValueError: an address is
    not read here, because nothing may be fetched before the platform starts."""
    from apps.identity.saml_metadata import read_metadata  # with xmlsec: for platforms that have such a provider

    rest = {key: value for key, value in settings.items() if key not in ("metadata", "metadata_file")}
    if "metadata_url" in rest:
        raise ValueError(f"{label}: settings.metadata_url is not read from the environment; name a metadata_file.")
    text = settings.get("metadata") or _read_file(label, "settings.metadata_file", settings.get("metadata_file", ""))
    try:
        return {**rest, **read_metadata(str(text).encode(), rest.get("entity_id"))} if text else rest
    except ValueError as error:
        raise ValueError(f"{label}: {error}.") from None


def _read_file(label: str, field: str, path: Any) -> str:
    if not path:
        return ""
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(MAX_FILE_BYTES).strip()
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{label}: {field} cannot be read: {error}") from None
