"""The audit trail at real receivers: in order, at least once, whatever dies meanwhile."""

import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from apps.accounts import audit
from apps.accounts.models import AuditEvent, User
from apps.audit_stream import delivery, selectors, syslog, webhook
from apps.audit_stream.models import AuditReceiver
from apps.audit_stream.receivers import MAX_DATAGRAM_BYTES
from apps.common.claims import RowClaim
from apps.common.clock import now
from apps.notices.models import Incident
from tests.apps.audit_stream.servers import HookServer, SyslogServer, hook_server, syslog_server
from tests.certificates import written

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]
SECRET = "a secret of the tests"


@pytest.fixture
def hooks(settings: Any) -> Iterator[HookServer]:
    with hook_server() as server:
        settings.AUDIT_WEBHOOK = f"http://user:word@127.0.0.1:{server.port}/path?key=1"
        settings.AUDIT_WEBHOOK_SECRET = SECRET
        delivery.get_receiver("webhook")
        yield server


@pytest.fixture
def logs(settings: Any) -> Iterator[SyslogServer]:
    with syslog_server() as server:
        settings.AUDIT_SYSLOG = f"tcp://127.0.0.1:{server.port}"
        delivery.get_receiver("syslog")
        yield server


def record(count: int = 1, **data: Any) -> list[int]:
    for number in range(count):
        audit.record_event(None, "task.create", f"task-{number}", **data)
    return list(AuditEvent.objects.order_by("pk").values_list("pk", flat=True))[-count:]


def make_due(**values: Any) -> None:
    AuditReceiver.objects.update(due_at=now(), **values)


def test_a_webhook_gets_each_event_once_in_order_and_signed(hooks: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_BATCH_EVENTS", 3)
    sent = record(7, name="学习")
    assert delivery.send_new_events() == 7
    assert delivery.send_new_events() == 0
    assert hooks.ids == sent
    assert len(hooks.requests) == 3
    headers, body = hooks.requests[0]
    assert headers["Content-Type"] == "application/x-ndjson"
    assert headers["X-Fermi-Audit-Events"] == f"{sent[0]}-{sent[2]}"
    stamp, signature = (part.partition("=")[2] for part in headers["X-Fermi-Signature"].split(","))
    expected = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert signature == expected


def test_the_stream_has_the_shape_of_the_export(hooks: HookServer) -> None:
    user = User.objects.create_superuser("root", "root@example.org", "a long enough password")
    record(2, name="a")
    delivery.send_new_events()
    client = Client()
    client.force_login(user)
    span = {"begin": (now() - timedelta(days=1)).isoformat(), "end": (now() + timedelta(days=1)).isoformat()}
    answer: Any = client.get("/api/v1/audit-events/export", query_params=span)
    assert b"".join(answer.streaming_content) == hooks.requests[0][1]


def test_syslog_gets_each_event_once_in_order_with_its_length_before_it(logs: SyslogServer) -> None:
    sent = record(5, name="第一行\n第二行")
    assert delivery.send_new_events() == 5
    assert logs.ids == sent
    assert logs.events[0]["data"] == {"name": "第一行\n第二行"}


def test_syslog_over_tls_checks_the_certificate(settings: Any, tmp_path: Path) -> None:
    certificate = written(tmp_path)
    with syslog_server(certificate) as server:
        settings.AUDIT_SYSLOG = f"tls://localhost:{server.port}"
        delivery.get_receiver("syslog")
        sent = record(3)
        assert delivery.send_new_events() == 0
        assert "certificate" in AuditReceiver.objects.get().problem.lower()
        settings.AUDIT_CA = str(certificate[0])
        make_due()
        assert delivery.send_new_events() == 3
        assert server.ids == sent


def test_syslog_over_udp_sends_one_event_in_each_datagram(settings: Any) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        settings.AUDIT_SYSLOG = f"udp://127.0.0.1:{receiver.getsockname()[1]}"
        delivery.get_receiver("syslog")
        record(2)
        record(1, long="x" * MAX_DATAGRAM_BYTES)
        assert delivery.send_new_events() == 3
        messages = [receiver.recv(65_536) for _ in range(3)]
    assert all(message.startswith(b"<110>1 ") for message in messages)
    assert len(messages[2]) < MAX_DATAGRAM_BYTES
    assert b'"data":null' in messages[2]


def test_a_process_that_dies_before_it_stores_the_position_sends_again(
    hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = record(3)
    write = RowClaim.write

    def die(claim: RowClaim, **values: Any) -> bool:
        if "position" in values:
            raise SystemExit
        return write(claim, **values)

    monkeypatch.setattr(RowClaim, "write", die)
    with pytest.raises(SystemExit):
        delivery.send_new_events()
    monkeypatch.undo()
    assert delivery.send_new_events() == 0, "its claim has not ended"
    make_due()
    assert delivery.send_new_events() == 3
    assert hooks.ids == sent * 2


def test_a_pass_that_lost_its_claim_moves_no_position(hooks: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    record(3)
    send = webhook.send_webhook

    def lose_claim(*given: Any, **named: Any) -> None:
        send(*given, **named)
        AuditReceiver.objects.update(due_at=now() + timedelta(minutes=1))

    monkeypatch.setattr(webhook, "send_webhook", lose_claim)
    before = AuditReceiver.objects.get().position
    assert delivery.send_new_events() == 0
    assert AuditReceiver.objects.get().position == before


def test_a_receiver_that_refuses_pauses_longer_each_time_and_loses_nothing(hooks: HookServer) -> None:
    hooks.statuses = [500, 302, 503]
    sent = record(2)
    pauses = []
    for _ in range(3):
        make_due()
        assert delivery.send_new_events() == 0
        row = AuditReceiver.objects.get()
        pauses.append(row.due_at - now())
    assert pauses == sorted(pauses)
    assert row.problem == "503"
    assert row.failures == 3
    assert delivery.send_new_events() == 0, "it pauses"
    make_due()
    assert delivery.send_new_events() == 2
    row.refresh_from_db()
    assert (row.failures, row.failing_since, row.problem) == (0, None, "")
    assert hooks.ids[-2:] == sent


def test_a_receiver_that_never_answers_is_given_up_and_tried_again(
    hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "TOTAL_SECONDS", 0.2)
    hooks.statuses = [0]
    sent = record(2)
    assert delivery.send_new_events() == 0
    assert "no answer" in AuditReceiver.objects.get().problem
    make_due()
    monkeypatch.undo()
    assert delivery.send_new_events() == 2
    assert hooks.ids[-2:] == sent


def test_a_syslog_receiver_that_closes_gets_the_events_again(logs: SyslogServer) -> None:
    logs.closes = True
    sent = record(3)
    for _ in range(3):
        make_due()
        assert delivery.send_new_events() == 0
    logs.closes = False
    make_due()
    assert delivery.send_new_events() == 3
    assert logs.ids == sent


def test_a_syslog_receiver_that_stops_reading_is_given_up(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "SEND_SECONDS", 0.3)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        settings.AUDIT_SYSLOG = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        delivery.get_receiver("syslog")
        record(200, long="x" * 30_000)
        before = AuditReceiver.objects.get().position
        assert delivery.send_new_events() == 0
        row = AuditReceiver.objects.get()
        assert row.position == before
        assert row.failures == 1


def test_one_receiver_that_is_down_does_not_delay_the_other(hooks: HookServer, logs: SyslogServer) -> None:
    logs.closes = True
    hooks.statuses = []
    sent = record(2)
    delivery.send_new_events()
    assert hooks.ids == sent


def test_operators_learn_of_a_receiver_that_is_down_and_that_it_is_back(hooks: HookServer) -> None:
    hooks.statuses = [500, 500]
    record(2)
    delivery.send_new_events()
    assert not Incident.objects.exists()
    make_due(failing_since=now() - timedelta(minutes=6))
    delivery.send_new_events()
    incident = Incident.objects.get()
    assert (incident.kind, incident.params["events"]) == ("audit_stream", 2)
    assert incident.params["address"] == f"http://127.0.0.1:{hooks.port}"
    [receiver] = selectors.list_receivers()
    assert receiver["eventsBehind"] == 2
    assert receiver["firstUnsentAt"] is not None
    make_due()
    delivery.send_new_events()
    incident.refresh_from_db()
    assert incident.over_at is not None
    assert selectors.list_receivers()[0]["eventsBehind"] == 0


def test_a_new_receiver_begins_now_or_at_the_time_given(settings: Any) -> None:
    early, late = record(2), record(2)
    moment = now()
    AuditEvent.objects.filter(pk__in=early).update(at=moment - timedelta(days=2))
    assert delivery.find_position(None) == late[-1]
    assert delivery.find_position(moment - timedelta(days=1)) == late[0] - 1
    assert delivery.find_position(moment + timedelta(days=1)) == late[-1]


def test_an_event_that_appears_after_later_ones_is_sent_before_them(hooks: HookServer) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    recorded, commit = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with transaction.atomic():
            audit.record_event(None, "task.create", "early")
            recorded.set()
            commit.wait(30)
        connection.close()

    writer = threading.Thread(target=write_slowly)
    writer.start()
    recorded.wait(30)
    record(2)
    assert delivery.send_new_events() == 0
    record(1)
    assert delivery.send_new_events() == 0
    commit.set()
    writer.join()
    assert delivery.send_new_events() == 4
    assert hooks.ids == sorted(hooks.ids)
    assert len(hooks.ids) == 4
