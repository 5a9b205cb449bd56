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
from apps.clusters.selectors import connection
from apps.common.clock import now
from apps.notices.models import Level
from apps.notices.services.incidents import open_params, over, tell
from fermi.engines.certificates import Ending, endings
from fermi.jobs.errors import BackendError
from fermi.planning import plugins

log = logging.getLogger(__name__)

AHEAD = timedelta(days=14)
LONG = timedelta(days=14)
"""A shorter validity means that a program renews it, so nobody is notified."""
SITE, SITE_SECONDS = "site", 5.0
_CODES = {
    "certificate": "NOTICE_CERTIFICATE_ENDS",
    "authority": "NOTICE_AUTHORITY_ENDS",
    "token": "NOTICE_CLUSTER_TOKEN_ENDS",
}


class Found(NamedTuple):
    """A certificate or token that expires, with the code and parameters of its notification."""

    ending: Ending
    code: str
    params: dict[str, Any]


def look() -> None:
    """Open an incident for what expires within WARN_BEFORE or has expired, and resolve those of what was renewed. For a
    cluster or site that cannot be read now, nothing changes."""
    told, moment = open_params("certificate_ends", "ended"), now().timestamp()
    unknown: set[str] = set()
    found = dict([*_clusters(unknown), *_site(unknown)])
    near = {key: one for key, one in found.items() if _is_near(one.ending, moment)}
    for key, one in near.items():
        ended = {"ended": True} if one.ending.ends <= moment else {}
        if key not in told or bool(told[key]) != bool(ended):
            params, level = {**one.params, "ends": one.ending.ends, **ended}, Level.FAIL if ended else Level.WARN
            tell("certificate_ends", key, one.code, params, level=level, counts=False)
    for key in told.keys() - near.keys():
        if key.partition(" ")[0] not in unknown:
            over(key, "certificate_ends")


def _is_near(ending: Ending, moment: float) -> bool:
    return ending.ends - moment < AHEAD.total_seconds() and ending.ends - ending.begins >= LONG.total_seconds()


def _clusters(unknown: set[str]) -> Iterator[tuple[str, Found]]:
    for cluster in Cluster.objects.filter(backend__in=plugins.BACKENDS):
        try:
            for one in plugins.check(cluster.backend).endings(connection(cluster)):
                key = hashlib.sha256(f"{one.kind} {one.where}".encode()).hexdigest()[:16]
                yield f"{cluster.pk} {key}", Found(one, _CODES[one.kind], {"cluster": cluster.name, "where": one.where})
        except BackendError as error:
            log.info("the certificates of %s cannot be read: %s", cluster.name, error)
            unknown.add(cluster.pk)


def _site(unknown: set[str]) -> Iterator[tuple[str, Found]]:
    """Yield the certificate of the server in front of the platform (FERMI_PUBLIC_URL)."""
    where = urlsplit(settings.PUBLIC_URL)
    if where.scheme != "https" or not where.hostname:
        return
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is only read
    try:
        with (
            socket.create_connection((where.hostname, where.port or 443), SITE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=where.hostname) as secured,
        ):
            content = secured.getpeercert(binary_form=True) or b""
    except (OSError, ValueError):
        unknown.add(SITE)
        return
    for one in endings("certificate", where.hostname, content):
        yield SITE, Found(one, "NOTICE_SITE_CERTIFICATE_ENDS", {"host": where.hostname})
