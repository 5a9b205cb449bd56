"""Programs that may request access: the command line, and those that registered themselves (RFC 7591)."""

from datetime import timedelta
from urllib.parse import urlsplit

from allauth.idp.oidc.models import Client
from django.core.exceptions import ValidationError

from apps.accounts import audit
from apps.accounts.scopes import SCOPES
from apps.common.clock import now
from apps.oauth.addresses import GRANT_TYPES, TOOLS_PATH
from apps.oauth.models import Grant

CLI_CLIENT = "fermi-cli"
CLI_REDIRECTS = ["http://127.0.0.1/callback", "http://[::1]/callback"]  # with any port (RFC 8252)
ALL = "all"
"""Scope of the command line: everything that the person may do."""
PRIVILEGED = frozenset(
    ("account:write", "agents:write", "identity:read", "identity:write", "people:read", "people:write",
     "tokens:read", "tokens:write")
)  # fmt: skip
"""Scopes that programs of others never get: with them they could give themselves more, or approve themselves."""
REQUESTABLE = [scope for scope in SCOPES if scope not in PRIVILEGED]
DEFAULT_SCOPES = [scope for scope in REQUESTABLE if scope.endswith(":read")]
"""What a program requests that names no scope."""

MAX_CLIENTS = 2_000  # that registered themselves
MAX_REDIRECTS, MAX_REDIRECT_LENGTH = 10, 500
MAX_RESOURCES = 5
UNUSED_AFTER = timedelta(days=1)


def list_resource_scopes(path: str) -> list[str]:
    """Return the scopes that the resource at `path` needs at most. Clients request all that its document names, so
    that of `/mcp` names those of the tools alone."""
    if path != TOOLS_PATH:
        return REQUESTABLE
    from fermi.mcp.tools import TOOLS

    needed = {scope for tool in TOOLS.values() for scope in tool.scopes}
    return [scope for scope in REQUESTABLE if scope in needed]


def find_client(client_id: str) -> Client | None:
    """Return the client, with what it may request today. The command line's is made on first use."""
    if client_id == CLI_CLIENT:
        return _make_cli_client()
    client = Client.objects.filter(pk=client_id[:100]).first()
    if client and client.get_scopes() != REQUESTABLE:
        client.set_scopes(REQUESTABLE)
        client.set_default_scopes(DEFAULT_SCOPES)
        client.save(update_fields=["scopes", "default_scopes"])
    return client


def _make_cli_client() -> Client:
    wanted = Client(id=CLI_CLIENT, name="Fermi CLI", type=Client.Type.PUBLIC, response_types="code")
    wanted.set_grant_types([Client.GrantType.AUTHORIZATION_CODE, Client.GrantType.DEVICE_CODE])
    wanted.set_redirect_uris(CLI_REDIRECTS)
    wanted.set_scopes([ALL, *SCOPES])
    wanted.set_default_scopes([ALL])
    fields = ("name", "type", "response_types", "grant_types", "redirect_uris", "scopes", "default_scopes")
    values = {field: getattr(wanted, field) for field in fields}
    client, _ = Client.objects.get_or_create(id=CLI_CLIENT, defaults=values)
    if any(getattr(client, field) != value for field, value in values.items()):
        Client.objects.filter(pk=CLI_CLIENT).update(**values)
        client.refresh_from_db()
    return client


def admit_client(client: Client) -> None:
    """Check a client that registers itself, and write into it what it may request. Raises ValidationError for an
    address that is neither https nor loopback, for grants that there are not, and where too many are registered."""
    addresses = client.get_redirect_uris()
    if len(addresses) > MAX_REDIRECTS:
        raise ValidationError(f"redirect_uris: at most {MAX_REDIRECTS}")
    for address in addresses:
        if not _is_allowed_redirect(address):
            raise ValidationError(f"redirect_uris: {address[:100]!r} is neither https nor http on 127.0.0.1 or [::1]")
    if unknown := set(client.get_grant_types()) - set(GRANT_TYPES):
        raise ValidationError(f"grant_types: not supported: {', '.join(sorted(unknown))}")
    if client.get_response_types() != ["code"]:
        raise ValidationError("response_types: only code is supported")
    _make_room()
    client.name = client.name or urlsplit(addresses[0]).hostname or ""
    client.data = {"dcr": True}  # not all that was sent
    client.set_scopes(REQUESTABLE)
    client.set_default_scopes(DEFAULT_SCOPES)
    audit.record_event(None, "oauth.register", client.pk, name=client.name, redirects=addresses)


def _is_allowed_redirect(address: str) -> bool:
    if len(address) > MAX_REDIRECT_LENGTH or "*" in address or not address.isprintable() or " " in address:
        return False
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return False
    if parts.fragment or "#" in address or parts.username is not None or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


def is_loopback(host: str) -> bool:
    """Return True for this computer's own addresses. allauth accepts any port of the two addresses (RFC 8252), and only
    the registered port of the name."""
    return host in ("127.0.0.1", "::1", "localhost")


def _make_room() -> None:
    registered = Client.objects.exclude(pk=CLI_CLIENT)
    if registered.count() < MAX_CLIENTS:
        return
    unused = registered.filter(created_at__lt=now() - UNUSED_AFTER).exclude(pk__in=Grant.objects.values("client"))
    keys = list(unused.order_by("created_at").values_list("pk", flat=True)[:100])
    if not keys:
        raise ValidationError("too many clients are registered here; try again later, or ask the operators")
    Client.objects.filter(pk__in=keys).delete()
