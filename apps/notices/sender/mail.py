"""Mails. Apprise parses the address; the mail is built here, because Apprise gives each try another Message-ID. With a
constant one, receivers recognise a mail that is sent again, and the mail that an incident is resolved is shown below
the first."""

import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formataddr, formatdate
from typing import Any

from apps.notices.sender.addresses import CONNECT_SECONDS, READ_SECONDS
from apps.notices.sender.errors import DeliveryError


def build_mail(plugin: Any, order: Mapping[str, Any]) -> EmailMessage:
    """Return the mail. `order`: `sent_for` identifies the mail, `answers` the earlier one; `created` is in unix
    seconds."""
    mail = EmailMessage()
    mail["Subject"] = " ".join(order["title"].split())
    mail["From"] = formataddr((plugin.from_addr[0] or "", plugin.from_addr[1]))
    mail["To"] = ", ".join(formataddr((name or "", address)) for name, address in plugin.targets)
    for header, addresses in (("Cc", plugin.cc), ("Reply-To", plugin.reply_to)):
        if addresses:
            mail[header] = ", ".join(formataddr((plugin.names.get(one) or "", one)) for one in sorted(addresses))
    mail["Date"] = formatdate(order["created"])
    mail["Message-ID"] = _make_message_id(plugin, order["sent_for"])
    if order["answers"]:
        mail["In-Reply-To"] = mail["References"] = _make_message_id(plugin, order["answers"])
    mail["Auto-Submitted"] = "auto-generated"
    for name, value in plugin.headers.items():
        if name not in mail:
            mail[name] = value
    mail.set_content(order["text"])
    return mail


def _make_message_id(plugin: Any, about: str) -> str:
    return f"<{about}@{plugin.from_addr[1].rpartition('@')[2]}>"


def send_mail(plugin: Any, mail: EmailMessage) -> str:
    """Send the mail and return the server's reply. Raises DeliveryError."""
    to = [*(address for _, address in plugin.targets), *plugin.cc, *plugin.bcc]
    try:
        with _connect_server(plugin) as server:
            refused = server.send_message(mail, plugin.from_addr[1], to)
    except smtplib.SMTPRecipientsRefused as error:
        raise _make_refused_error(*next(iter(error.recipients.values()))) from None
    except smtplib.SMTPResponseException as error:
        raise _make_refused_error(error.smtp_code, error.smtp_error) from None
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryError("CHANNEL_AWAY", why=str(error) or type(error).__name__) from None
    for code, said in refused.values():
        if code < 500:
            raise _make_refused_error(code, said)  # for a while: the others know the mail when it comes again
    return ", ".join(["250", *(f"{address}: {code} {_decode_text(said)}" for address, (code, said) in refused.items())])


def _connect_server(plugin: Any) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if not plugin.verify_certificate:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    where: dict[str, Any] = {"host": plugin.smtp_host, "port": plugin.port, "timeout": CONNECT_SECONDS}
    server = smtplib.SMTP_SSL(**where, context=context) if plugin.secure_mode == "ssl" else smtplib.SMTP(**where)
    try:
        assert server.sock is not None
        server.sock.settimeout(READ_SECONDS)
        if plugin.secure_mode == "starttls":
            server.starttls(context=context)
        if plugin.user and plugin.password:
            server.login(plugin.user, plugin.password)
    except BaseException:
        server.close()
        raise
    return server


def _make_refused_error(code: int, reply: bytes | str) -> DeliveryError:
    return DeliveryError("CHANNEL_REFUSES", answer=f"{code} {_decode_text(reply)}", status=code)


def _decode_text(reply: bytes | str) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else reply
