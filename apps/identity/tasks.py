"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task


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
