"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task

from apps.common import wakeups
from apps.identity import provider_sessions, recheck


@shared_task(name="identity.sweep", ignore_result=True)
def recheck_due_providers() -> None:
    """Have each provider with due grants asked, in a message of its own: one that is slow makes no other wait."""
    for provider in recheck.list_due_providers():
        wakeups.enqueue_task("identity.recheck", provider)


@shared_task(name="identity.recheck", ignore_result=True)
def recheck_provider(provider_id: str) -> None:
    """Renew the due grants of one provider."""
    recheck.recheck_provider(provider_id)


@shared_task(name="identity.forget", ignore_result=True)
def delete_expired() -> None:
    """Delete rows of sessions that are over, and logout tokens that are too old to be accepted."""
    provider_sessions.delete_expired_rows()
    provider_sessions.delete_expired_tokens()


@shared_task(name="identity.metadata", ignore_result=True)
def refresh_saml_metadata() -> None:
    """Read again what SAML providers say of themselves, above all with which certificates they sign."""
    from apps.identity import saml_metadata  # with xmlsec: for platforms that have such a provider

    saml_metadata.refresh_metadata()


@shared_task(name="identity.ldap", ignore_result=True)
def recheck_ldap_people() -> None:
    """Ask the directory whether the people who signed in by it are still there."""
    from apps.identity.ldap import recheck  # with python-ldap: for platforms that have a directory

    recheck.recheck_people()
