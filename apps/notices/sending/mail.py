"""Mails. Apprise reads the address; the mail is made here, because Apprise gives each try another Message-ID. By one
that stays, a mail that is sent again is known to be the same, and "over" stands below what is over."""

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formataddr, formatdate
from typing import Any

from apps.notices.models import Delivery
from apps.notices.sending.addresses import CONNECT_SECONDS, READ_SECONDS
from apps.notices.sending.unsent import Unsent
from apps.notices.sending.wording import Message


def takes(plugin: Any) -> bool:
    """`plugin`: what Apprise understood of an address. What is to be encrypted is left to it."""
    return getattr(plugin, "pgp_mode", None) == "no"


def made(plugin: Any, delivery: Delivery, message: Message) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = " ".join(message.title.split())
    mail["From"] = formataddr((plugin.from_addr[0] or "", plugin.from_addr[1]))
    mail["To"] = ", ".join(formataddr((name or "", address)) for name, address in plugin.targets)
    for header, addresses in (("Cc", plugin.cc), ("Reply-To", plugin.reply_to)):
        if addresses:
            mail[header] = ", ".join(formataddr((plugin.names.get(one) or "", one)) for one in sorted(addresses))
    mail["Date"] = formatdate(delivery.created_at.timestamp())
    mail["Message-ID"] = _id(plugin, delivery, delivery.what)
    if delivery.what == "over":
        mail["In-Reply-To"] = mail["References"] = _id(plugin, delivery, "opened")
    mail["Auto-Submitted"] = "auto-generated"
    for name, value in plugin.headers.items():
        if name not in mail:
            mail[name] = value
    mail.set_content("\n\n".join(filter(None, (message.body, message.link))))
    return mail


def _id(plugin: Any, delivery: Delivery, what: str) -> str:
    """There is one message of each kind for each incident and channel."""
    about = f"{delivery.incident_id}.{delivery.channel_id}.{what}" if delivery.incident_id else delivery.pk
    return f"<{about}@{plugin.from_addr[1].rpartition('@')[2]}>"


def send(plugin: Any, mail: EmailMessage) -> str:
    """What the server said. Raises Unsent."""
    to = [*(address for _, address in plugin.targets), *plugin.cc, *plugin.bcc]
    try:
        with _connected(plugin) as server:
            refused = server.send_message(mail, plugin.from_addr[1], to)
    except smtplib.SMTPRecipientsRefused as error:
        raise _refused(*next(iter(error.recipients.values()))) from None
    except smtplib.SMTPResponseException as error:
        raise _refused(error.smtp_code, error.smtp_error) from None
    except (smtplib.SMTPException, OSError) as error:
        raise Unsent("CHANNEL_AWAY", why=str(error) or type(error).__name__) from None
    for code, said in refused.values():
        if code < 500:
            raise _refused(code, said)  # for a while: the others know the mail when it comes again
    return ", ".join(["250", *(f"{address}: {code} {_text(said)}" for address, (code, said) in refused.items())])


def _connected(plugin: Any) -> smtplib.SMTP:
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


def _refused(code: int, said: bytes | str) -> Unsent:
    return Unsent("CHANNEL_REFUSES", answer=f"{code} {_text(said)}", status=code)


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
