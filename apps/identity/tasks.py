"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task


@shared_task(name="identity.metadata", ignore_result=True)
def refresh_saml_metadata() -> None:
    """Read again what SAML providers say of themselves, above all with which certificates they sign."""
    from apps.identity import saml_metadata  # with xmlsec: for platforms that have such a provider

    saml_metadata.refresh_metadata()
