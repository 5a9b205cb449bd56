"""Word of what happens, by real mail and real webhooks: once for each incident, whatever dies meanwhile."""

import contextlib
import hashlib
import hmac
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connections, transaction
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts import encryption
from apps.accounts.models import Membership, Project, Role, User
from apps.common.clock import get_time_zone, now
from apps.notices import delivery as notice_delivery
from apps.notices import fanout, quiet_hours, selectors, tasks
from apps.notices.models import Channel, Delivery, Incident, Item, Rule
from apps.notices.sender import child, egress_policy, process, request
from apps.notices.sender.egress_policy import AllowedHosts, HostNotAllowedError, enforce_policy
from apps.notices.services import channels, incidents, rules
from apps.notices.services.incidents import open_incident, resolve_incidents
from tests.apps.notice_servers import Hooks, Mails, http, one_sender, smtp
from tests.certificates import written
from tests.polling import until

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


WHY = {"code": "RANK_FAILED", "params": {"rank": 3, "node": "dgx-02", "exitCode": 1}}


@pytest.fixture
def mails() -> Iterator[Mails]:
    with smtp() as server:
        yield server


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    with http() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def sender() -> Iterator[None]:
    with one_sender():
        yield


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.NOTICE_HOSTS = ["127.0.0.0/8"]
    settings.PUBLIC_URL = "https://fermi.example.org/"


@pytest.fixture
def ann() -> User:
    user = User.objects.create_user("ann", password="a long enough password")
    project = Project.objects.create(pk="project-one", name="one")
    Membership.objects.create(project=project, user=user, role=Role.MAINTAINER)
    return user


def channel(user: User, kind: str, address: str, **fields: Any) -> Channel:
    return channels.create_channel(user, scope="me", name="mine", kind=kind, address=address, lang="en", **fields)[0]


def rule(user: User, *to: Channel, **fields: Any) -> Rule:
    return rules.create_rule(user, scope="me", name="all", channels=[one.pk for one in to], **fields)


def mail_to(mails: Mails) -> str:
    return f"mailto://127.0.0.1:{mails.port}?from=fermi@example.org&to=ann@example.org&mode=insecure"


def fails(user: User, key: str = "task-x", **more: Any) -> None:
    params = {"name": "gpt", "task": key, "why": WHY}
    open_incident(
        "task_failed",
        key,
        "NOTICE_TASK_FAILED",
        params,
        project="project-one",
        owner=user.pk,
        link=f"/tasks/{key}",
        **more,
    )


def test_a_failure_is_delivered_once_by_mail_and_once_by_webhook(ann: User, mails: Mails, hooks: Hooks) -> None:
    row, secret = channels.create_channel(ann, scope="me", name="hook", kind="webhook", address=hooks.url, lang="en")
    rule(ann, channel(ann, "apprise", mail_to(mails)), row)
    fails(ann)
    for _ in range(3):
        tasks.sweep_notices()
    [mail] = mails.received
    assert mail["Subject"] == "Task gpt failed"
    assert mail["X-Fermi-Delivery"].startswith("delivery-")
    text = mail.get_content()
    assert "https://fermi.example.org/tasks/task-x" in text
    assert "dgx-02" in text
    [(headers, told, body)] = hooks.received
    stamp, given = (part.partition("=")[2] for part in headers["X-Fermi-Signature"].split(","))
    assert hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() == given
    assert told["event"] == headers["X-Fermi-Event"] == "incident.opened"
    assert told["delivery"] == headers["X-Fermi-Delivery"]
    assert (told["incident"]["kind"], told["incident"]["key"], told["link"]) == (
        "task_failed", "task-x", "https://fermi.example.org/tasks/task-x",
    )  # fmt: skip
    assert [row.outcome for row in Delivery.objects.all()] == ["sent", "sent"]
    assert Item.objects.get().user == ann


def test_who_has_left_the_project_is_told_nothing_of_it_any_more(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    fails(ann, "task-before")
    fanout.spread_incidents()
    assert incidents.count_unread(ann) == 1
    Membership.objects.all().delete()
    fails(ann, "task-after")
    for _ in range(2):
        tasks.sweep_notices()
    assert hooks.received == []
    assert [row.outcome for row in Delivery.objects.all()] == ["dropped"]
    assert (incidents.count_unread(ann), Item.objects.count()) == (0, 1)
    assert not selectors.list_items(ann).exists()


def test_an_inactive_person_is_sent_nothing(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    fails(ann)
    fanout.spread_incidents()
    User.objects.update(is_active=False)
    tasks.sweep_notices()
    assert (hooks.received, Delivery.objects.get().outcome) == ([], "dropped")


def test_many_events_of_one_incident_are_one_message(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url), restarts=3)
    for number in range(5):
        params = {"name": "gpt", "why": WHY, "next": number}
        open_incident("task_restarted", "task-x", "NOTICE_TASK_RESTARTED", params, owner=ann.pk)
        tasks.sweep_notices()
        assert len(hooks.received) == (number >= 2)  # from the third on
    assert Incident.objects.get().times == 5


def test_a_resolved_incident_is_reported_to_those_who_were_notified(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    open_incident("task_hung", "task-x", "NOTICE_TASK_HUNG", {"name": "gpt", "why": WHY}, owner=ann.pk)
    tasks.sweep_notices()
    resolve_incidents("task-x", "task_hung")
    resolve_incidents("task-x", "task_hung")
    tasks.sweep_notices()
    open_incident("task_hung", "task-y", "NOTICE_TASK_HUNG", {"name": "gpt", "why": WHY}, owner=ann.pk)
    resolve_incidents("task-y", "task_hung")  # before anybody heard of it
    tasks.sweep_notices()
    assert [told["event"] for _, told, _ in hooks.received] == ["incident.opened", "incident.over"]
    assert hooks.received[1][1]["title"] == "Resolved: Task gpt makes no progress"
    open_incident("task_hung", "task-x", "NOTICE_TASK_HUNG", {"name": "gpt", "why": WHY}, owner=ann.pk)  # anew
    tasks.sweep_notices()
    assert len(hooks.received) == 3


def test_a_rolled_back_incident_notifies_no_one(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        fails(ann)
        raise ZeroDivisionError
    tasks.sweep_notices()
    assert hooks.received == []


def test_an_error_in_notifying_does_not_affect_the_caller(ann: User) -> None:
    with transaction.atomic():
        open_incident("no_such_kind", "x", "NOTICE_TEST", {})
        open_incident("task_failed", "x" * 500, "NOTICE_TEST", {"bad": object()})
        assert User.objects.count() == 1  # the transaction goes on


@pytest.mark.parametrize("moment", ["before it is sent", "after it was sent"])
def test_a_message_interrupted_by_a_kill_is_sent_again_with_the_same_id(
    ann: User, hooks: Hooks, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that really dies: what it had noted is in the database, and nothing else is left of it."""
    rule(ann, channel(ann, "webhook", hooks.url))
    fails(ann)
    fanout.spread_incidents()
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            if moment == "before it is sent":
                notice_delivery.send_message = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,return-value]
            else:
                notice_delivery._record_try = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
            notice_delivery.deliver_due()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    sent = len(hooks.received)
    assert sent == (moment == "after it was sent")
    tasks.sweep_notices()
    assert len(hooks.received) == sent  # it is still claimed
    later = now() + notice_delivery.CLAIM_SPAN * 2
    monkeypatch.setattr(notice_delivery, "now", lambda: later)
    tasks.sweep_notices()
    tasks.sweep_notices()
    assert len(hooks.received) == sent + 1
    assert len({headers["X-Fermi-Delivery"] for headers, _, _ in hooks.received}) == 1
    delivery = Delivery.objects.get()
    assert delivery.outcome == "sent"
    assert ["seconds" in one for one in delivery.tries] == [False, True]


def test_a_repeated_mail_has_the_same_message_id(ann: User, mails: Mails, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the server's yes the process dies, before that is noted."""
    rule(ann, channel(ann, "apprise", mail_to(mails)))
    fails(ann)
    fanout.spread_incidents()
    connections.close_all()
    child = os.fork()
    if child == 0:
        notice_delivery._record_try = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        try:
            notice_delivery.deliver_due()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    later = now() + notice_delivery.CLAIM_SPAN * 2
    monkeypatch.setattr(notice_delivery, "now", lambda: later)
    tasks.sweep_notices()
    first, second = mails.received
    assert first["Message-ID"] == second["Message-ID"]
    assert first.get_all("Message-ID") == [first["Message-ID"]]
    assert first["Message-ID"].endswith("@example.org>")
    assert first.as_bytes() == second.as_bytes()


def test_mails_of_an_incident_are_one_thread(ann: User, mails: Mails) -> None:
    rule(ann, channel(ann, "apprise", mail_to(mails)))
    open_incident("task_hung", "task-x", "NOTICE_TASK_HUNG", {"name": "gpt\nx", "why": WHY}, owner=ann.pk)
    tasks.sweep_notices()
    resolve_incidents("task-x", "task_hung")
    tasks.sweep_notices()
    fails(ann)
    tasks.sweep_notices()
    opened, ended, other = mails.received
    subjects = (opened["Subject"], ended["Subject"])
    assert subjects == ("Task gpt x makes no progress", "Resolved: Task gpt x makes no progress")
    assert ended["In-Reply-To"] == ended["References"] == opened["Message-ID"]
    assert len({mail["Message-ID"] for mail in mails.received}) == 3
    assert (opened["References"], other["References"]) == (None, None)
    assert opened["Auto-Submitted"] == "auto-generated"


def test_the_answer_of_a_mail_server_is_logged(ann: User, mails: Mails) -> None:
    address = mail_to(mails).replace("to=ann", "to=bob@example.org,ann")
    row = channel(ann, "apprise", f"{address}&cc=carl@example.org&reply=ops@example.org")
    mails.refuses = {"bob@example.org": "550 no such mailbox"}
    tried = channels.test_channel(ann, row.pk)
    assert (tried.outcome, tried.tries[0]["answer"]) == ("sent", "250, bob@example.org: 550 no such mailbox")
    [mail] = mails.received
    assert (mail["To"], mail["Cc"], mail["Reply-To"]) == (
        "bob@example.org, ann@example.org", "carl@example.org", "ops@example.org",
    )  # fmt: skip
    mails.refuses = {"bob@example.org": "450 come again"}
    tried = channels.test_channel(ann, row.pk)
    assert (tried.outcome, tried.tries[0]["error"]) == (
        "failed",
        {"code": "CHANNEL_REFUSES", "params": {"status": 450}},
    )
    mails.refuses = {f"{name}@example.org": "550 no such mailbox" for name in ("ann", "bob", "carl")}
    tried = channels.test_channel(ann, row.pk)
    assert (tried.outcome, tried.tries[0]["answer"]) == ("failed", "550 no such mailbox")


@pytest.mark.parametrize("mode", ["starttls", "ssl"])
def test_a_mail_server_needs_a_valid_certificate_and_gets_the_password(ann: User, tmp_path: Path, mode: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*written(tmp_path))
    with smtp(mode, tls, "open sesame") as mails:
        where = f"127.0.0.1:{mails.port}?from=fermi@example.org&to=ann@example.org&mode={mode}"
        for address, outcome, error in (
            (f"mailtos://u:open%20sesame@{where}&verify=no", "sent", ""),
            (f"mailtos://u:wrong@{where}&verify=no", "failed", "CHANNEL_REFUSES"),
            (f"mailtos://u:open%20sesame@{where}", "failed", "CHANNEL_AWAY"),
        ):
            tried = channels.test_channel(ann, channel(ann, "apprise", address).pk)
            assert (tried.outcome, tried.tries[0].get("error", {}).get("code", "")) == (outcome, error), tried.tries
        assert len(mails.received) == 1
    assert "certificate verify failed" in tried.tries[0]["error"]["params"]["why"]


def test_concurrent_senders_send_a_message_once(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    fails(ann)
    fanout.spread_incidents()
    hooks.hold = threading.Event()
    key = Delivery.objects.get().pk
    first = threading.Thread(target=lambda: (notice_delivery.deliver_due(), connections.close_all()))
    first.start()
    until(lambda: hooks.received)
    with process.SenderProcess() as sender:
        assert notice_delivery.deliver_one(key, sender) is False
    hooks.hold.set()
    first.join()
    assert len(hooks.received) == 1


def test_a_failing_server_is_retried_later_and_its_channel_paused(
    ann: User, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    hooks.answers = [(500, {}), (503, {})]
    moment = [now()]
    for module in (notice_delivery, fanout, incidents):
        monkeypatch.setattr(module, "now", lambda: moment[0])
    fails(ann)
    tasks.sweep_notices()
    fails(ann, "task-y")
    tasks.sweep_notices()  # another message of a channel that rests
    assert len(hooks.received) == 1
    row = Channel.objects.get()
    assert row.failures == 1
    for _ in range(20):
        moment[0] += timedelta(minutes=2)
        tasks.sweep_notices()
    assert [one.outcome for one in Delivery.objects.all()] == ["sent", "sent"]
    assert Channel.objects.get().failures == 0
    errors = [one["error"]["code"] for row in Delivery.objects.all() for one in row.tries if "error" in one]
    assert errors == ["CHANNEL_REFUSES"] * 2
    assert hooks.received[0][1]["delivery"] in {told["delivery"] for _, told, _ in hooks.received[1:]}


def test_messages_of_a_failing_channel_are_not_all_tried(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    hooks.answers = [(500, {})] * 3
    for key in ("task-x", "task-y", "task-z"):
        fails(ann, key)
    tasks.sweep_notices()
    assert len(hooks.received) == 1
    assert Delivery.objects.filter(outcome="waiting", tries=[]).count() == 2


def test_a_message_that_never_succeeds_is_given_up(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    rule(ann, channel(ann, "webhook", f"http://127.0.0.1:{port}/"))
    moment = [now()]
    for module in (notice_delivery, fanout, incidents):
        monkeypatch.setattr(module, "now", lambda: moment[0])
    fails(ann)
    for _ in range(40):
        tasks.sweep_notices()
        moment[0] += timedelta(hours=15)
    row = Delivery.objects.get()
    assert (row.outcome, row.due_at, len(row.tries)) == ("failed", None, len(notice_delivery.RETRY_DELAYS) + 1)


def test_a_slow_channel_delays_no_other_thread(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    hooks.hold = threading.Event()
    for number in range(process.MAX_PROCESSES):
        fails(ann, f"task-{number}")
    fanout.spread_incidents()
    keys = list(Delivery.objects.values_list("pk", flat=True))
    busy = [threading.Thread(target=lambda: (notice_delivery.deliver_due(), connections.close_all())) for _ in keys]
    for thread in busy:
        thread.start()
    while len(hooks.received) < 1:
        busy[0].join(0.01)
    fails(ann, "task-late")
    fanout.spread_incidents()  # what happens is still noted and spread
    assert Delivery.objects.count() == process.MAX_PROCESSES + 1
    hooks.hold.set()
    for thread in busy:
        thread.join()


def test_many_messages_of_one_channel_do_not_delay_another(ann: User, hooks: Hooks) -> None:
    with http() as other:
        rule(ann, channel(ann, "webhook", hooks.url), kinds=["task_failed"])
        for number in range(30):
            fails(ann, f"task-{number}")
        fanout.spread_incidents()
        rule(ann, channel(ann, "webhook", other.url), kinds=["task_waits"])
        params = {"name": "gpt", "seconds": 3600, "hours": 1, "why": WHY}
        open_incident("task_waits", "task-x", "NOTICE_TASK_WAITS", params, owner=ann.pk)
        fanout.spread_incidents()
        assert notice_delivery.deliver_due() == 2
        assert (len(hooks.received), len(other.received)) == (1, 1)
        while notice_delivery.deliver_due():
            pass
        assert len(hooks.received) == 30


def test_quiet_hours_hold_back_minor_messages(ann: User, hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    night = datetime(2026, 11, 23, 16, 30, tzinfo=UTC)  # half past midnight in Shanghai
    rule(ann, channel(ann, "webhook", hooks.url), quiet_from=22 * 60, quiet_to=7 * 60, timezone="Asia/Shanghai",
         breaks_through="fail")  # fmt: skip
    moment = [night]
    for module in (notice_delivery, fanout, incidents):
        monkeypatch.setattr(module, "now", lambda: moment[0])
    open_incident(
        "task_waits",
        "task-x",
        "NOTICE_TASK_WAITS",
        {"name": "gpt", "seconds": 3600, "hours": 1, "why": WHY},
        owner=ann.pk,
    )
    fails(ann)
    tasks.sweep_notices()
    assert [told["incident"]["kind"] for _, told, _ in hooks.received] == ["task_failed"]
    moment[0] = night + timedelta(hours=6, minutes=29)
    tasks.sweep_notices()
    assert len(hooks.received) == 1
    moment[0] = night + timedelta(hours=6, minutes=30)
    tasks.sweep_notices()
    assert len(hooks.received) == 2


@given(st.integers(0, 365 * 24 * 60), st.integers(0, 1439), st.integers(0, 1439),
       st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu"]))  # fmt: skip
def test_quiet_hours_end_within_a_day_and_in_the_future(at: int, begins: int, ends: int, where: str) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=at)
    found = quiet_hours.compute_send_time(moment, begins, ends, where)
    assert moment - timedelta(hours=1) <= found <= moment + timedelta(hours=25)
    if found > moment:
        assert found.astimezone(get_time_zone(where)).minute == ends % 60


def test_each_users_rules_apply_to_their_own_events(ann: User, hooks: Hooks) -> None:
    bob = User.objects.create_user("bob", password="a long enough password")
    rule(bob, channel(bob, "webhook", hooks.url))
    fails(ann)
    tasks.sweep_notices()
    assert hooks.received == []
    Rule.objects.update(user=None, project="project-one")
    Channel.objects.update(user=None, project="project-one")
    fails(ann, "task-y")
    tasks.sweep_notices()
    assert len(hooks.received) == 1


# Where messages may not go


@pytest.mark.parametrize(("words", "host", "address", "named"), [
    (["hooks.example.org"], "hooks.example.org", "93.184.216.34", True),
    (["*.example.org"], "a.example.org", "8.8.8.8", True),
    (["*"], "anything.example", "1.1.1.1", True), (["10.0.0.0/8"], "10.1.2.3", "10.1.2.3", False),
    (["10.0.0.0/8", "hooks.internal"], "hooks.internal", "10.1.2.3", True), (["::1/128"], "[::1]", "::1", False),
])  # fmt: skip
def test_allowed_addresses_can_be_reached(words: list[str], host: str, address: str, named: bool) -> None:
    rules = AllowedHosts(words)
    assert rules.name(host)
    found = egress_policy._parse_address(address)
    assert found is not None
    assert rules.address(found, named=named)


@pytest.mark.parametrize(("words", "host", "address"), [
    ([], "hooks.example.org", "93.184.216.34"), (["hooks.example.org"], "example.org", "93.184.216.34"),
    (["hooks.example.org"], "hooks.example.org.evil.net", "8.8.8.8"), (["*.example.org"], "example.org", "8.8.8.8"),
    (["*"], "127.0.0.1", "127.0.0.1"), (["*"], "169.254.169.254", "169.254.169.254"), (["*"], "[::1]", "::1"),
    (["*"], "[::ffff:127.0.0.1]", "::ffff:127.0.0.1"), (["10.0.0.0/8"], "11.0.0.1", "11.0.0.1"),
])  # fmt: skip
def test_forbidden_addresses_cannot_be_reached(words: list[str], host: str, address: str) -> None:
    rules = AllowedHosts(words)
    found = egress_policy._parse_address(address)
    assert found is not None
    assert not (rules.name(host) and rules.address(found, named=True))


def test_a_name_that_resolves_to_an_internal_address_is_refused_at_connect(hooks: Hooks) -> None:
    """As a name server does that answers the check with one address and the connection with another."""
    port = hooks.url.split(":")[2].split("/")[0]
    order = {"do": "webhook", "hosts": ["hooks.example.org"], "address": f"http://hooks.example.org:{port}/hook",
             "body": "{}", "headers": {}}  # fmt: skip
    real = socket.getaddrinfo

    def rebound(host: Any, *args: Any, **more: Any) -> Any:
        found = real("127.0.0.1" if "example" in str(host) else host, *args, **more)
        egress_policy._thread_state.named = True  # the name was looked up, and allowed
        return found

    with (
        mock.patch.object(egress_policy.AllowedHosts, "name", return_value=True),
        mock.patch.object(socket, "getaddrinfo", rebound),
    ):
        answer = child.carry_out_order(order)
    assert hooks.received == []
    assert (answer["code"], answer["params"]) == ("CHANNEL_HOST_REFUSED", {"host": "127.0.0.1"})


def test_redirects_are_not_followed(ann: User, hooks: Hooks) -> None:
    rule(ann, channel(ann, "webhook", hooks.url))
    hooks.answers = [(307, {"Location": hooks.url})]
    fails(ann)
    tasks.sweep_notices()
    assert len(hooks.received) == 1
    assert Delivery.objects.get().tries[0]["error"]["params"] == {"status": 307}


def test_mail_to_forbidden_addresses_is_refused(ann: User, mails: Mails, settings: Any) -> None:
    row = channel(ann, "apprise", mail_to(mails))
    settings.NOTICE_HOSTS = ["10.0.0.0/8"]
    tried = channels.test_channel(ann, row.pk)
    assert mails.received == []
    assert (tried.outcome, tried.tries[0]["error"]["code"]) == ("failed", "CHANNEL_HOST_REFUSED")


def test_the_guard_covers_all_threads_programs_and_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "file").write_text("x")
    (tmp_path / "public" / "link").symlink_to(tmp_path / "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = server.getsockname()
        met: list[str] = []

        def elsewhere() -> None:
            try:
                socket.create_connection(where).close()
            except HostNotAllowedError as error:
                met.append(error.host)

        with enforce_policy(AllowedHosts([]), [str(tmp_path / "public")]) as refused:
            with pytest.raises(HostNotAllowedError):
                socket.create_connection(where)
            assert refused.host == "127.0.0.1"
            with pytest.raises(HostNotAllowedError):
                os.system("true")
            with pytest.raises(HostNotAllowedError), socket.socket(socket.AF_UNIX) as local:
                local.connect("/run/dbus/system_bus_socket")
            with pytest.raises(HostNotAllowedError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
                datagram.sendto(b"x", where)
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()
            assert (tmp_path / "public" / "file").read_bytes() == b"x"
            for name in ("secret", "public/link", "public/../secret"):
                with pytest.raises(egress_policy.FileNotAllowedError):
                    (tmp_path / name).open("rb")
            with pytest.raises(egress_policy.FileNotAllowedError):
                (tmp_path / "public" / "file").open("ab")
            with pytest.raises(egress_policy.FileNotAllowedError):
                os.listdir(tmp_path)
            with pytest.raises(egress_policy.FileNotAllowedError):
                os.remove(tmp_path / "public" / "file")
        elsewhere()
    assert met == ["127.0.0.1"]


def test_an_old_channel_with_a_file_parameter_sends_nothing(ann: User, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the administrator's token")
    row = channel(ann, "apprise", "json://127.0.0.1:9/")
    Channel.objects.update(
        address=encryption.encrypt_value(
            f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ?template={tmp_path}/secret"
        )
    )
    tried = channels.test_channel(ann, row.pk)
    error = tried.tries[0]["error"]
    assert (tried.outcome, error["code"], error["params"]["found"]) == (
        "failed", "CHANNEL_PARAMETER_NOT_ALLOWED", "template",
    )  # fmt: skip


def test_a_server_that_never_finishes_is_given_up_at_the_limit(
    ann: User, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends a byte now and then, so that no time limit of a single read is met."""
    row = channel(ann, "webhook", hooks.url)
    monkeypatch.setattr(request, "SEND_SECONDS", 1.0)
    hooks.drip = True
    tried = channels.test_channel(ann, row.pk)
    assert (tried.outcome, tried.tries[0]["error"]) == (
        "failed", {"code": "CHANNEL_TIMED_OUT", "params": {"seconds": 1}},
    )  # fmt: skip
    hooks.drip = False
    monkeypatch.undo()
    assert channels.test_channel(ann, row.pk).outcome == "sent"


@pytest.mark.parametrize("secret", ["hunter22", "T1JJ3T3L2/A1BRTD4JD"])
def test_secrets_in_addresses_are_never_shown(ann: User, secret: str, settings: Any) -> None:
    address = (
        f"mailto://ann:{secret}@smtp.example.org?to=x@example.org"
        if "/" not in secret
        else f"slack://{secret}/TIiajkdnlazkcOXrIdevi7FQ"
    )
    settings.NOTICE_HOSTS = ["*", "127.0.0.0/8"]
    row = channel(ann, "apprise", address)
    assert secret.split("/")[0] not in f"{row.shown} {row.address} {row.name}"
    assert row.shown


def test_a_channel_encrypted_with_another_key_says_so(ann: User, hooks: Hooks, settings: Any) -> None:
    row = channel(ann, "webhook", hooks.url)
    settings.SECRET_KEY = "another"
    tried = channels.test_channel(ann, row.pk)
    assert (tried.outcome, tried.tries[0]["error"]["code"]) == ("failed", "CHANNEL_UNREADABLE")
