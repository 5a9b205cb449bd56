"""What the API server answers when it refuses: a Status object in Kubernetes' own words."""

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fakes import upgrades
from tests.fakes.kubernetes.resources import Resource


class Refused(Exception):
    """An answer other than success. `status` is the body that the client gets; where a kubelet answers (`plain`), it
    is the message alone."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None, *, plain: bool = False
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.plain = plain
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.headers: dict[str, str] = {}

    @property
    def status(self) -> dict[str, Any]:
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        body |= {"reason": self.reason, "code": self.code}
        return body | ({"details": self.details} if self.details else {})


def _about(resource: Resource, name: str, **more: Any) -> dict[str, Any]:
    about = {"name": name, "kind": resource.plural} | ({"group": resource.group} if resource.group else {})
    return about | more


def not_found(resource: Resource, name: str) -> Refused:
    return Refused(404, "NotFound", f'{resource.full_name} "{name}" not found', _about(resource, name))


def no_such_path() -> Refused:
    return Refused(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> Refused:
    message = f'{resource.full_name} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, _about(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> Refused:
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    message = f'Operation cannot be fulfilled on {resource.full_name} "{name}": {why}'
    return Refused(409, "Conflict", message, _about(resource, name))


def invalid(resource: Resource, name: str, *problems: tuple[str, str]) -> Refused:
    """`problems`: (field, message)."""
    text = ", ".join(f"{field}: {message}" for field, message in problems)
    causes = [{"reason": "FieldValueInvalid", "message": message, "field": field} for field, message in problems]
    message = f'{resource.kind}{"." + resource.group if resource.group else ""} "{name}" is invalid: '
    return Refused(422, "Invalid", message + (f"[{text}]" if len(problems) > 1 else text),
                   _about(resource, name, causes=causes))  # fmt: skip


def bad_request(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def protocol(handler: BaseHTTPRequestHandler, known: Sequence[str]) -> str:
    """What a WebSocket is to speak. Raises Refused."""
    try:
        return upgrades.chosen(handler, known)
    except ValueError as error:
        raise bad_request(str(error)) from None


def forbidden(resource: Resource, name: str, why: str) -> Refused:
    return Refused(403, "Forbidden", f'{resource.full_name} "{name}" is forbidden: {why}', _about(resource, name))


def expired(message: str) -> Refused:
    return Refused(410, "Expired", message)


def too_old(asked: int, current: int) -> Refused:
    return expired(f"too old resource version: {asked} ({current})")


def unsupported_media_type(accepted: str) -> Refused:
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return Refused(415, "UnsupportedMediaType", message)


def not_faked(what: str) -> Refused:
    """Something real clusters do and the fake does not: said aloud, so that no test believes it worked."""
    return Refused(501, "NotImplemented", f"this fake does not do {what}")


def too_many_requests(retry_after_seconds: int) -> Refused:
    message = "Too many requests, please try again later."
    refused = Refused(429, "TooManyRequests", message, {"retryAfterSeconds": retry_after_seconds})
    refused.headers["Retry-After"] = str(retry_after_seconds)
    return refused


def internal(message: str = "etcdserver: leader changed") -> Refused:
    return Refused(500, "InternalError", f"Internal error occurred: {message}")


def webhook_denied(webhook: str, message: str) -> Refused:
    return Refused(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {message}', {})


def webhook_failed(webhook: str) -> Refused:
    """One with failurePolicy Fail that does not answer (kubernetes, apiserver/pkg/admission/plugin/webhook)."""
    url = f"https://{webhook.partition('.')[0]}.hooks.svc:443/?timeout=10s"
    call = f'failed to call webhook: Post "{url}": dial tcp 10.96.0.7:443: connect: connection refused'
    return internal(f'failed calling webhook "{webhook}": {call}')


def policy_denied(resource: Resource, name: str, message: str) -> Refused:
    """By a ValidatingAdmissionPolicy: 422 with the words of a 403 (kubernetes,
    apiserver/pkg/admission/plugin/policy/validating/dispatcher.go)."""
    why = f"ValidatingAdmissionPolicy 'limits' with binding 'limits-binding' denied request: {message}"
    refused = forbidden(resource, name, why)
    return Refused(422, "Invalid", refused.message, refused.details)
