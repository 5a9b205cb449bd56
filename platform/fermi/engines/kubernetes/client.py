"""Requests to one API server, as plain JSON: what is rendered is what is sent, and answers are not turned into
thousands of model objects. The client library provides authentication, TLS, proxies and connection pooling."""

import json
import os
import random
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlencode

import kubernetes.client
import urllib3.exceptions
from kubernetes.client.exceptions import ApiException, OpenApiException
from kubernetes.stream import stream
from websocket import WebSocket

from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.credentials import KubernetesCredentials
from fermi.jobs.errors import BackendError

Answer = TypeVar("Answer")

MAX_PARALLEL = 32
"""Requests at a time: beyond it an API server on its default settings takes no more per second."""
TIMEOUT_SECONDS = 30.0
MAX_ERROR_BYTES = 200
"""Bytes that are shown of an answer that is no JSON."""
MAX_RETRIES = 5
"""How often a request is sent again that the API server answered with `429 Too Many Requests`."""
DENIAL_PHRASES = ("denied the request", "denied request", "violates podsecurity")
"""Phrases by which a webhook, a policy of the API server's own, and Pod Security refuse."""
_PLUG_IN_DENIAL = re.compile(r"is forbidden: (?!user |cannot set |$)")
"""An admission plug-in of the API server's own refuses in the same form as its authorizer, which names the user
(kubernetes/kubernetes, staging/src/k8s.io/apiserver/pkg/admission/errors.go, NewForbidden;
endpoints/handlers/responsewriters/errors.go, forbiddenMessage). `cannot set`: an owner's rights are missing
(plugin/pkg/admission/gc/gc_admission.go). Nothing: the right to create what a WebSocket requests is missing
(pkg/registry/core/pod/rest/authorize.go, from Kubernetes 1.35 on)."""
_ROLE_NOT_LOADED = re.compile(r"rbac: .*not found")
"""The authorizer has the binding and not its role: one that has just started has not read all of them yet
(kubernetes/kubernetes, plugin/pkg/auth/authorizer/rbac/rbac.go, Authorize)."""
MERGE_PATCH = "application/merge-patch+json"

KIND_PATHS = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
    "Pod": ("/api/v1", "pods"),
    "Event": ("/api/v1", "events"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims"),
    "Job": ("/apis/batch/v1", "jobs"),
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "Workload": ("/apis/kueue.x-k8s.io/v1beta2", "workloads"),
}


class KubernetesApiError(BackendError):
    """The API server refused a request or did not answer. `status`: HTTP's, 0 when there was no answer; `reason`:
    Kubernetes' name of it (AlreadyExists, Expired, …)."""

    def __init__(self, code: str, status: int, reason: str, message: str, *, permanent: bool) -> None:
        super().__init__(code, permanent=permanent, status=status, why=message)
        self.status, self.reason, self.message = status, reason, message


def build_api_error(status: int, reason: str, message: str) -> KubernetesApiError:
    """Return the error of an answer, with the platform's code for it."""
    said = message.lower()
    if status == 403 and "exceeded quota" in said:
        return KubernetesApiError("QUOTA_EXCEEDED", status, reason, message, permanent=False)
    denied = any(words in said for words in DENIAL_PHRASES) or (status == 403 and _PLUG_IN_DENIAL.search(said))
    if denied and 400 <= status < 500:
        return KubernetesApiError("ADMISSION_DENIED", status, reason, message, permanent=True)
    if status == 401 or (status == 403 and 'user "system:anonymous"' in said):
        return KubernetesApiError("ENGINE_UNAUTHORIZED", status, reason, message, permanent=False)
    if status == 403:
        return KubernetesApiError(
            "ENGINE_FORBIDDEN", status, reason, message, permanent=not _ROLE_NOT_LOADED.search(said)
        )
    if status >= 500 and "failed calling webhook" in said:
        return KubernetesApiError("WEBHOOK_UNAVAILABLE", status, reason, message, permanent=False)
    if status in (0, 408, 409, 410, 429) or status >= 500:
        return KubernetesApiError("ENGINE_UNREACHABLE", status, reason, message, permanent=False)
    return KubernetesApiError("ENGINE_REJECTED", status, reason, message, permanent=True)


def describe_no_answer(error: BaseException | None) -> str:
    """Return the system's own reason why there was no answer, at the bottom of what the libraries wrap around it; the
    same for each request of an outage."""
    outermost = error
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        inner = getattr(error, "reason", None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
    return re.sub(r"<[^>]* object at 0x[0-9a-f]+>(: )?", "", f"{type(outermost).__name__}: {outermost}")


class ResponseStream:
    """Answer that comes in pieces. `close` may be called by another thread and ends the reading."""

    def __init__(self, response: urllib3.HTTPResponse) -> None:
        self._response = response

    def batches(self) -> Iterator[list[bytes]]:
        """Yield the lines that arrived together; only whole ones. Raise KubernetesApiError when the connection
        breaks."""
        rest = b""
        try:
            for piece in self._response.stream(1 << 16):
                *lines, rest = (rest + piece).split(b"\n")
                if lines:
                    yield lines
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise build_api_error(0, "", describe_no_answer(error)) from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError, ValueError, RuntimeError, AttributeError):
            self._response.shutdown()


def open_in_time(seconds: float, open_connection: Callable[[], Any]) -> Any:
    """Return what `open_connection` opens; the library sets no limit for how long that may take. Raise TimeoutError
    after `seconds`; what is opened later is closed."""
    pool = ThreadPoolExecutor(1, "opening")
    opening = pool.submit(open_connection)
    pool.shutdown(wait=False)
    try:
        return opening.result(seconds)
    except TimeoutError:
        opening.add_done_callback(lambda late: late.exception() or late.result().close())
        raise


METADATA_ACCEPT = "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json"
"""Accept header for metadata alone: of ConfigMaps mostly the annotations matter, not their megabytes; `list`: "List",
or "" for one object."""


class KubernetesClient:
    """Client of one API server. Its methods raise KubernetesApiError. Connections are made when they are needed."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.namespaces = names.list_namespaces(connection)
        self.namespace = self.namespaces[0]
        self._connection = connection
        self._credentials = KubernetesCredentials(connection)
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._pool: ThreadPoolExecutor | None = None

    def path(self, kind: str, name: str = "", *, below: str = "", namespace: str = "") -> str:
        """Return the path of a kind in our namespace (or another one), of one object of it, or of what is below
        that."""
        prefix, plural = KIND_PATHS[kind]
        return "/".join(filter(None, (f"{prefix}/namespaces/{namespace or self.namespace}", plural, name, below)))

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return an object or a list."""
        return self.request("GET", path, query=query)

    def find(self, path: str, accept: str = "application/json") -> dict[str, Any] | None:
        """Return an object; None when there is none."""
        try:
            return self.request("GET", path, accept=accept)
        except KubernetesApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, kind: str, obj: Mapping[str, Any]) -> dict[str, Any] | None:
        """Create an object and return it; None when one of that name exists already."""
        try:
            return self.request("POST", self.path(kind), body=obj)
        except KubernetesApiError as error:
            if error.reason == "AlreadyExists":
                return None
            error.params |= {"pod": obj["metadata"]["name"], "evidence": error.message}
            raise

    def create_secret(self, secret: Mapping[str, Any], values: Mapping[str, str]) -> None:
        """Create a Secret where there is none of that name. The message of a webhook that refuses it is passed on
        without the values."""
        try:
            self.create("Secret", secret)
        except BackendError as error:
            said = {name: _redact(text, values) for name, text in error.params.items()}
            raise BackendError(error.code, permanent=error.permanent, **said) from None

    def annotate(self, kind: str, name: str, **annotations: str) -> dict[str, Any]:
        """Set annotations of an object and return it. Keyword names have `__` in place of `/`."""
        marks = {"metadata": {"annotations": {key.replace("__", "/"): value for key, value in annotations.items()}}}
        return self.request("PATCH", self.path(kind, name), body=marks, content_type=MERGE_PATCH)

    def replace(self, kind: str, name: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object with the `resourceVersion` that was read; refused where another writer changed it
        meanwhile."""
        return self.request("PUT", self.path(kind, name), body=obj)

    def text(self, path: str, **query: Any) -> bytes:
        """Return an answer that is no JSON, such as a log."""
        stream = self.stream(path, query=query, timeout=TIMEOUT_SECONDS)
        return b"".join(line + b"\n" for lines in stream.batches() for line in lines)

    def forward(self, pod: str, port: int) -> WebSocket:
        """Open a WebSocket to a port of the pod's own loopback, see `channels.PortForwardStream`."""
        return self._upgraded("connect_get_namespaced_pod_portforward", pod, ports=str(port))

    def execute(self, pod: str, container: str, command: Sequence[str], namespace: str = "") -> WebSocket:
        """Run a command in a running container over a WebSocket; see `channels.PodExecStream`. `namespace`: the pod's,
        where that is not ours."""
        wanted = dict.fromkeys(("stdin", "stdout", "stderr"), True)
        return self._upgraded(
            "connect_get_namespaced_pod_exec", pod, namespace, container=container, command=list(command), tty=False,
            **wanted,
        )  # fmt: skip

    def _upgraded(self, call: str, pod: str, namespace: str = "", **query: Any) -> WebSocket:
        self._own()
        ask = getattr(kubernetes.client.CoreV1Api(self._credentials.api()), call)

        def connect() -> WebSocket:
            try:
                found = stream(ask, pod, namespace or self.namespace, binary=True, _preload_content=False, **query)
            except (ApiException, OpenApiException, OSError, ValueError) as error:
                raise _build_websocket_error(error) from error
            talk: WebSocket = found.sock
            return talk

        return self._repeat_if_forbidden(connect)

    def delete(
        self, kind: str, name: str, *, uid: str = "", propagation: str = "Foreground", grace: int | None = None
    ) -> None:
        """Delete an object; one that is gone, or another object of that name, is left alone."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", self.path(kind, name), body=options)
        except KubernetesApiError as error:
            if error.status not in (404, 409):
                raise

    def request(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None,
        content_type: str = "application/json", timeout: float = TIMEOUT_SECONDS, accept: str = "application/json",
    ) -> dict[str, Any]:  # fmt: skip
        """Send a request and return its JSON answer. `timeout`: seconds."""
        return self._repeat_if_forbidden(
            lambda: self._request_json(method, path, query, body, content_type, (5.0, timeout), accept)
        )

    def _request_json(self, method: str, path: str, *rest: Any) -> dict[str, Any]:
        for patience in range(MAX_RETRIES, -1, -1):
            response = self._send(method, path, *rest)
            if response.status != 429 or not patience:
                break
            response.drain_conn()
            time.sleep(_parse_retry_after(response.headers.get("Retry-After")) * random.uniform(1.0, 1.5))
        try:
            answer = json.loads(response.data or b"{}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise build_api_error(0, "", describe_no_answer(error)) from error
        except ValueError as error:
            said = response.data[:MAX_ERROR_BYTES].decode(errors="replace").strip()
            why = f"no JSON in the answer: {said}" if said else "no JSON in the answer"
            raise build_api_error(response.status if response.status >= 400 else 0, "", why) from error
        if response.status >= 400:
            raise build_api_error(
                response.status, str(answer.get("reason") or ""), str(answer.get("message") or answer)
            )
        found: dict[str, Any] = answer
        return found

    def stream(
        self, path: str, *, query: Mapping[str, Any], timeout: float, accept: str = "application/json"
    ) -> ResponseStream:
        """Open an answer that comes in pieces. `timeout`: seconds without a byte after which the connection counts as
        broken."""
        return self._repeat_if_forbidden(lambda: self._open_stream(path, query, timeout, accept))

    def _open_stream(self, path: str, query: Mapping[str, Any], timeout: float, accept: str) -> ResponseStream:
        response = self._send("GET", path, query, None, "", (5.0, timeout), accept)
        if response.status < 400:
            return ResponseStream(response)
        try:
            text = response.data.decode(errors="replace")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise build_api_error(0, "", describe_no_answer(error)) from error
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"message": text}
        raise build_api_error(response.status, str(answer.get("reason") or ""), str(answer.get("message") or ""))

    def together(self, action: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Return `action` of each item, MAX_PARALLEL at a time; all of them are tried, then the first failure is
        raised, permanent ones before others."""
        self._own()
        with self._lock:
            pool = self._pool = self._pool or ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="kubernetes")
            futures = [pool.submit(action, item) for item in items]
        failures = [error for future in futures if (error := future.exception())]
        if failures:
            raise next((e for e in failures if isinstance(e, BackendError) and e.permanent), failures[0])
        return [future.result() for future in futures]

    def close(self) -> None:
        """Release the threads. What was started is finished, and a later request makes new ones: another thread may be
        in the middle."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool:
            pool.shutdown(wait=False)

    def _repeat_if_forbidden(self, send: Callable[[], Answer]) -> Answer:
        """Return what `send` returns. An API server that has just started forbids all requests, `/readyz` too, until it
        has read who may do what; then it may allow them. So a refusal is permanent only where a server that is ready
        refuses the same request once more."""
        try:
            return send()
        except KubernetesApiError as refused:
            if refused.code != "ENGINE_FORBIDDEN" or not refused.permanent:
                raise
            if not self._is_ready():
                refused.permanent = False
                raise
        return send()

    def _is_ready(self) -> bool:
        try:
            ready = self._send("GET", "/readyz", None, None, "", (5.0, 5.0), "*/*")
            ready.drain_conn()
        except KubernetesApiError:
            return False
        return ready.status < 400

    def _own(self) -> None:
        """Make new credentials and threads in a forked process, which has the memory of the parent, but neither its
        threads nor a right to its connections. The process is noted last: until then every thread of it makes its
        own."""
        if self._pid != os.getpid():
            self._credentials = KubernetesCredentials(self._connection)
            self._pool, self._lock = None, threading.Lock()
            self._pid = os.getpid()

    def _send(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, content_type: str,
        timeout: tuple[float, float], accept: str,
    ) -> urllib3.HTTPResponse:  # fmt: skip
        self._own()
        credentials = self._credentials
        api = credentials.api()
        headers = {"Accept": accept, "User-Agent": "fermi", **({"Content-Type": content_type} if body else {})}
        target = path + (f"?{urlencode(query)}" if query else "")
        response = _send_request(api, method, target, headers, body, timeout)
        if response.status == 401 and (renewed := credentials.again(api)) is not api:
            response.drain_conn()
            response = _send_request(renewed, method, target, headers, body, timeout)
        return response


def _send_request(
    api: kubernetes.client.ApiClient, method: str, target: str, headers: Mapping[str, str], body: Any,
    timeout: tuple[float, float],
) -> urllib3.HTTPResponse:  # fmt: skip
    headers = dict(headers)
    try:
        api.update_params_for_auth(headers, [], ["BearerToken"], target, method, body)
        headers = {name: value.strip() for name, value in headers.items()}  # a token's file ends with a newline
        _check_headers(headers)
        url = api.configuration.host + target
        answer = api.rest_client.request(method, url, headers=headers, body=body, _request_timeout=timeout)
    except ApiException as error:
        raise build_api_error(error.status or 0, "", str(error.reason)) from error
    except (urllib3.exceptions.HTTPError, OpenApiException, OSError, ValueError) as error:
        raise build_api_error(0, "", describe_no_answer(error)) from error
    response: urllib3.HTTPResponse = answer.response
    return response


def _build_websocket_error(error: BaseException) -> KubernetesApiError:
    """Return the error of a WebSocket that was not opened; the API server's answer is in the exception that the library
    has wrapped."""
    answer = error.__context__
    status = int(getattr(answer, "status_code", None) or 0)
    try:
        said = json.loads(getattr(answer, "resp_body", None) or b"{}")
    except ValueError:
        said = {}
    if not status:
        return build_api_error(0, "", describe_no_answer(answer or error))
    return build_api_error(status, str(said.get("reason") or ""), str(said.get("message") or answer))


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise BackendError for headers that cannot be sent: the HTTP client's own error would show the credentials."""
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise BackendError("CREDENTIALS_UNSENDABLE", permanent=True)


def _parse_retry_after(text: str | None) -> float:
    """Return the seconds of a Retry-After header, at most 10."""
    return min(float(text), 10.0) if text and text.isdecimal() else 1.0


def _redact(text: Any, values: Mapping[str, str]) -> Any:
    for value in values.values() if isinstance(text, str) else ():
        for form in (value, b64encode(value.encode()).decode()):
            text = text.replace(form, "***")
    return text
