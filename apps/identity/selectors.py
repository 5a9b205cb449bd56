"""Which providers there are."""

import logging
from datetime import timedelta

from allauth.socialaccount.models import SocialAccount
from django.db.models import Count

from apps.accounts.encryption import DecryptionError, decrypt_value
from apps.common.clock import now
from apps.identity import environment
from apps.identity.configuration import ProviderConfiguration
from apps.identity.models import IdentityProvider, ProviderRecheck

log = logging.getLogger(__name__)


def list_configurations(*, enabled: bool | None = True) -> list[ProviderConfiguration]:
    """Return the providers of the environment, then those of the table by name. An id of the environment hides the same
    one of the table. A row whose secret cannot be decrypted is left out, and logged."""
    found = list(environment.read_environment().providers)
    taken = {one.id for one in found}
    for row in IdentityProvider.objects.exclude(pk__in=taken).order_by("name", "pk"):
        try:
            found.append(make_configuration(row))
        except DecryptionError:
            log.error("the secret of the identity provider %s cannot be decrypted: enter it again", row.pk)
    return [one for one in found if enabled is None or one.enabled is enabled]


def find_configuration(provider_id: str, *, enabled: bool | None = True) -> ProviderConfiguration | None:
    """Return the provider of this id, or None."""
    return next((one for one in list_configurations(enabled=enabled) if one.id == provider_id), None)


def list_silent_providers(silence: timedelta) -> list[ProviderRecheck]:
    """Return the enabled providers that have not answered for so long whether they still vouch for people."""
    known = [one.id for one in list_configurations()]
    return list(ProviderRecheck.objects.filter(provider__in=known, silent_since__lt=now() - silence).order_by("pk"))


def count_links() -> dict[str, int]:
    """Return how many accounts are linked, by provider."""
    return dict(SocialAccount.objects.order_by().values_list("provider").annotate(Count("pk")))


def make_configuration(row: IdentityProvider) -> ProviderConfiguration:
    """Return a row with its secret decrypted. Raises DecryptionError."""
    return ProviderConfiguration(
        id=row.pk,
        kind=row.kind,
        name=row.name,
        client_id=row.client_id,
        secret=decrypt_value(row.secret) if row.secret else "",
        settings=row.settings,
        enabled=row.enabled,
    )
