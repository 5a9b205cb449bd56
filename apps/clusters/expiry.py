"""Notifications before certificates and tokens expire: those that clusters are connected with, and the platform's
own."""

import hashlib
import logging
import socket
import ssl
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from apps.clusters.models import Cluster
from apps.clusters.selectors import build_connection
from apps.common.clock import now
from apps.notices.models import IncidentLevel
from apps.notices.services.incidents import open_incident, read_open_params, resolve_incidents
from fermi.engines.certificates import CredentialExpiry, read_expiries
from fermi.jobs.errors import BackendError
from fermi.planning import plugins

log = logging.getLogger(__name__)

WARN_BEFORE = timedelta(days=14)
MIN_VALIDITY = timedelta(days=14)
"""A shorter validity means that a program renews it, so nobody is notified."""
SITE_KEY, SITE_TIMEOUT_SECONDS = "site", 5.0
_CODES = {
    "certificate": "NOTICE_CERTIFICATE_ENDS",
    "authority": "NOTICE_AUTHORITY_ENDS",
    "token": "NOTICE_CLUSTER_TOKEN_ENDS",
}


class ExpiringItem(NamedTuple):
    """A certificate or token that expires, with the code and parameters of its notification."""

    ending: CredentialExpiry
    code: str
    params: dict[str, Any]


def notify_expiring() -> None:
    """Open an incident for what expires within WARN_BEFORE or has expired, and resolve those of what was renewed. For a
    cluster or site that cannot be read now, nothing changes."""
    told, moment = read_open_params("certificate_ends", "ended"), now().timestamp()
    unknown: set[str] = set()
    found = dict([*_read_cluster_items(unknown), *_read_site_items(unknown)])
    near = {key: one for key, one in found.items() if _is_expiring(one.ending, moment)}
    for key, one in near.items():
        ended = {"ended": True} if one.ending.ends <= moment else {}
        if key not in told or bool(told[key]) != bool(ended):
            params, level = (
                {**one.params, "ends": one.ending.ends, **ended},
                IncidentLevel.FAIL if ended else IncidentLevel.WARN,
            )
            open_incident("certificate_ends", key, one.code, params, level=level, counts_again=False)
    for key in told.keys() - near.keys():
        if key.partition(" ")[0] not in unknown:
            resolve_incidents(key, "certificate_ends")


def _is_expiring(ending: CredentialExpiry, moment: float) -> bool:
    return (
        ending.ends - moment < WARN_BEFORE.total_seconds()
        and ending.ends - ending.begins >= MIN_VALIDITY.total_seconds()
    )


def _read_cluster_items(unknown: set[str]) -> Iterator[tuple[str, ExpiringItem]]:
    for cluster in Cluster.objects.filter(backend__in=plugins.BACKENDS):
        try:
            for one in plugins.get_check(cluster.backend).endings(build_connection(cluster)):
                key = hashlib.sha256(f"{one.kind} {one.where}".encode()).hexdigest()[:16]
                yield (
                    f"{cluster.pk} {key}",
                    ExpiringItem(one, _CODES[one.kind], {"cluster": cluster.name, "where": one.where}),
                )
        except BackendError as error:
            log.info("the certificates of %s cannot be read: %s", cluster.name, error)
            unknown.add(cluster.pk)


def _read_site_items(unknown: set[str]) -> Iterator[tuple[str, ExpiringItem]]:
    """Yield the certificate of the server in front of the platform (FERMI_PUBLIC_URL)."""
    where = urlsplit(settings.PUBLIC_URL)
    if where.scheme != "https" or not where.hostname:
        return
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is only read
    try:
        with (
            socket.create_connection((where.hostname, where.port or 443), SITE_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=where.hostname) as secured,
        ):
            content = secured.getpeercert(binary_form=True) or b""
    except (OSError, ValueError):
        unknown.add(SITE_KEY)
        return
    for one in read_expiries("certificate", where.hostname, content):
        yield SITE_KEY, ExpiringItem(one, "NOTICE_SITE_CERTIFICATE_ENDS", {"host": where.hostname})
