"""Operators hear of certificates and tokens before they end, and that there are new ones."""

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from apps.clusters import expiry
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.notices import fanout
from apps.notices.models import Incident, Item
from apps.notices.sender import message as sent_message
from tests.certificates import certificate
from tests.unit.engines.test_certificates import jwt

pytestmark = [pytest.mark.database, pytest.mark.django_db]
YEAR = 365 * 86_400


@pytest.fixture(autouse=True)
def site(settings: Any) -> None:
    settings.PUBLIC_URL = ""


def within(days: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)


def kubeconfig(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Cluster:
    """A cluster with a kubeconfig that says this."""
    path = folder / "config"
    told = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://k", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}, {"name": "other", "user": {"token": jwt(exp=1).decode()}}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(told))
    return Cluster.objects.update_or_create(
        name="gpu", defaults={"backend": "kubernetes", "connection": {"kubeconfig": str(path)}}
    )[0]


def list_open_incidents() -> list[tuple[str, str]]:
    """Code and level of what goes on."""
    rows = Incident.objects.filter(kind="certificate_ends", over_at=None).order_by("code")
    return list(rows.values_list("code", "level"))


def inline(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_a_client_certificate_is_reported_two_weeks_before_its_end_and_when_renewed(
    tmp_path: Path, administrator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = within(15)
    kubeconfig(tmp_path, {"client-certificate-data": inline(certificate(ends)[0])})
    expiry.notify_expiring()
    assert list_open_incidents() == []
    moment = now() + timedelta(days=2)
    monkeypatch.setattr(expiry, "now", lambda: moment)
    for _ in range(3):
        expiry.notify_expiring()
    fanout.spread_incidents()
    assert list_open_incidents() == [("NOTICE_CERTIFICATE_ENDS", "warn")]
    row = Incident.objects.get()
    assert (row.times, row.due_at) == (1, None)
    message = sent_message.build_message(row, "opened", "en")
    assert message.title == f"The client certificate for cluster gpu is valid until {ends:%Y-%m-%d %H:%M} UTC"
    assert str(tmp_path / "config") in message.body
    assert Item.objects.get().user == administrator
    moment += timedelta(days=14)
    for _ in range(2):
        expiry.notify_expiring()
    assert list_open_incidents() == [("NOTICE_CERTIFICATE_ENDS", "fail")]
    row.refresh_from_db()
    assert (row.times, row.due_at is None) == (1, False)
    assert "expired at" in sent_message.build_message(row, "opened", "en").title
    kubeconfig(tmp_path, {"client-certificate-data": inline(certificate(within(300))[0])})
    expiry.notify_expiring()
    assert list_open_incidents() == []


def test_only_files_named_by_a_kubeconfig_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(certificate(within(3))[0])
    (tmp_path / "token").write_bytes(jwt(iat=now().timestamp() - YEAR, exp=now().timestamp() + 86_400))
    kubeconfig(tmp_path, {"tokenFile": "token"}, {"certificate-authority": "ca.crt"})
    expiry.notify_expiring()
    assert list_open_incidents() == [("NOTICE_AUTHORITY_ENDS", "warn"), ("NOTICE_CLUSTER_TOKEN_ENDS", "warn")]
    assert {row.params["where"] for row in Incident.objects.all()} == {
        str(tmp_path / "ca.crt"), str(tmp_path / "token"),
    }  # fmt: skip


@pytest.mark.parametrize("user", [
    {"token": "opaque"}, {"token": jwt(iat=now().timestamp(), exp=now().timestamp() + 3600).decode()},
    {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}}, {},
])  # fmt: skip
def test_credentials_without_end_or_renewed_by_a_program_are_not_reported(tmp_path: Path, user: dict[str, Any]) -> None:
    kubeconfig(tmp_path, user)
    expiry.notify_expiring()
    assert list_open_incidents() == []


def test_a_slurm_token_expires_too(tmp_path: Path) -> None:
    path = tmp_path / "jwt"
    path.write_bytes(b"SLURM_JWT=" + jwt(iat=now().timestamp() - YEAR, exp=now().timestamp() - 60) + b"\n")
    connection = {"url": "http://slurm:6820", "token_file": str(path)}
    Cluster.objects.create(name="hpc", backend="slurm", connection=connection)
    Cluster.objects.create(name="here", backend="local")
    Cluster.objects.create(name="gone", backend="of-yesterday")
    expiry.notify_expiring()
    assert list_open_incidents() == [("NOTICE_CLUSTER_TOKEN_ENDS", "fail")]


@pytest.mark.parametrize("how", ["gone", "no yaml", "no base64"])
def test_an_unreadable_credential_keeps_its_incident_and_does_not_stop_others(tmp_path: Path, how: str) -> None:
    kubeconfig(tmp_path, {"client-certificate-data": inline(certificate(within(1))[0])})
    expiry.notify_expiring()
    match how:
        case "gone":
            (tmp_path / "config").unlink()
        case "no yaml":
            (tmp_path / "config").write_text("{")
        case _:
            kubeconfig(tmp_path, {"client-certificate-data": "x"})
    (tmp_path / "jwt").write_bytes(jwt(exp=now().timestamp()))
    connection = {"url": "http://slurm:6820", "token_file": str(tmp_path / "jwt")}
    Cluster.objects.create(name="hpc", backend="slurm", connection=connection)
    expiry.notify_expiring()
    assert [code for code, _ in list_open_incidents()] == ["NOTICE_CERTIFICATE_ENDS", "NOTICE_CLUSTER_TOKEN_ENDS"]


def test_a_removed_cluster_has_no_expiring_credentials(tmp_path: Path) -> None:
    cluster = kubeconfig(tmp_path, {"client-certificate-data": inline(certificate(within(1))[0])})
    expiry.notify_expiring()
    cluster.delete()
    expiry.notify_expiring()
    assert list_open_incidents() == []


@contextmanager
def served(folder: Path, ends: datetime) -> Iterator[int]:
    """The port of something that shows itself by a certificate, and says no more."""
    for name, content in zip(("tls.crt", "tls.key"), certificate(ends), strict=True):
        (folder / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            plain, _ = server.accept()
            with context.wrap_socket(plain, server_side=True) as secured:
                secured.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_the_platforms_own_certificate_is_checked(tmp_path: Path, settings: Any) -> None:
    with served(tmp_path, within(5)) as port:
        settings.PUBLIC_URL = f"https://localhost:{port}"
        expiry.notify_expiring()
    assert list_open_incidents() == [("NOTICE_SITE_CERTIFICATE_ENDS", "warn")]
    assert Incident.objects.get().params["host"] == "localhost"
    expiry.notify_expiring()  # nobody answers there now
    assert list_open_incidents() == [("NOTICE_SITE_CERTIFICATE_ENDS", "warn")]
    with served(tmp_path, within(90)) as port:
        settings.PUBLIC_URL = f"https://localhost:{port}"
        expiry.notify_expiring()
    assert list_open_incidents() == []
