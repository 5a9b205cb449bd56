"""Requests to one API server, as plain JSON: what is rendered is what is sent, and what comes back is not turned into
thousands of model objects. The client library brings authentication, TLS, proxies and connection pooling."""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import kubernetes.client
import kubernetes.config
import urllib3.exceptions
from kubernetes.client.exceptions import ApiException, OpenApiException
from kubernetes.config.config_exception import ConfigException

from fermi.launch.errors import BackendError

PARALLEL = 32
"""Requests at a time: past it an API server on its default settings takes no more per second."""
CONNECTIONS = 1024  # kept open at most; each pod that is followed holds one
TIMEOUT_SECONDS = 30.0
TOO_MANY_TRIES = 5
"""How often a request is sent again that the API server answered with `429 Too Many Requests`."""
MERGE_PATCH = "application/merge-patch+json"

PATHS = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Service": ("/api/v1", "services"),
    "Pod": ("/api/v1", "pods"),
    "Event": ("/api/v1", "events"),
    "Job": ("/apis/batch/v1", "jobs"),
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "Workload": ("/apis/kueue.x-k8s.io/v1beta2", "workloads"),
}


class Refused(BackendError):
    """`status`: HTTP's, 0 when there was no answer; `reason`: Kubernetes' word for it (AlreadyExists, Expired, …)."""

    def __init__(self, code: str, status: int, reason: str, message: str, *, permanent: bool) -> None:
        super().__init__(code, permanent=permanent, status=status, why=message)
        self.status, self.reason, self.message = status, reason, message


def refusal(status: int, reason: str, message: str) -> Refused:
    """Which of our codes an answer is."""
    said = message.lower()
    if status == 403 and "exceeded quota" in said:
        return Refused("QUOTA_EXCEEDED", status, reason, message, permanent=False)
    if 400 <= status < 500 and ("denied the request" in said or "violates podsecurity" in said):
        return Refused("ADMISSION_DENIED", status, reason, message, permanent=True)
    if status in (401, 403):
        return Refused("ENGINE_FORBIDDEN", status, reason, message, permanent=True)
    if status in (0, 408, 409, 410, 429) or status >= 500:
        return Refused("ENGINE_UNREACHABLE", status, reason, message, permanent=False)
    return Refused("ENGINE_REJECTED", status, reason, message, permanent=True)


class Stream:
    """An answer that comes in pieces. `close` may be called by another thread and ends the reading."""

    def __init__(self, response: urllib3.HTTPResponse) -> None:
        self._response = response

    def batches(self) -> Iterator[list[bytes]]:
        """The lines that arrived together; only whole ones. Raises Refused when the connection breaks."""
        rest = b""
        try:
            for piece in self._response.stream(1 << 16):
                *lines, rest = (rest + piece).split(b"\n")
                if lines:
                    yield lines
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise refusal(0, "", f"{type(error).__name__}: {error}") from error
        finally:
            self._response.close()

    def close(self) -> None:
        with suppress(OSError, ValueError, RuntimeError, AttributeError):
            self._response.shutdown()


class Client:
    """Raises Refused. Connections are made when they are needed."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.namespace = str(connection.get("namespace") or "default")
        self._connection = connection
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._made: kubernetes.client.ApiClient | None = None
        self._pool: ThreadPoolExecutor | None = None

    def path(self, kind: str, name: str = "", *, below: str = "") -> str:
        """Of a kind in our namespace, of one object of it, or of what is below that."""
        prefix, plural = PATHS[kind]
        return "/".join(filter(None, (f"{prefix}/namespaces/{self.namespace}", plural, name, below)))

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        return self.request("GET", path, query=query)

    def find(self, path: str) -> dict[str, Any] | None:
        """None when there is none."""
        try:
            return self.get(path)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def create(self, kind: str, obj: Mapping[str, Any]) -> dict[str, Any] | None:
        """None when one of that name is there already."""
        try:
            return self.request("POST", self.path(kind), body=obj)
        except Refused as error:
            if error.reason == "AlreadyExists":
                return None
            error.params |= {"pod": obj["metadata"]["name"], "evidence": error.message}
            raise

    def annotate(self, kind: str, name: str, **annotations: str) -> dict[str, Any]:
        marks = {"metadata": {"annotations": {key.replace("__", "/"): value for key, value in annotations.items()}}}
        return self.request("PATCH", self.path(kind, name), body=marks, content_type=MERGE_PATCH)

    def delete(
        self, kind: str, name: str, *, uid: str = "", propagation: str = "Foreground", grace: int | None = None
    ) -> None:
        """Nothing happens when it is gone, or when one of that name is another object."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", self.path(kind, name), body=options)
        except Refused as error:
            if error.status not in (404, 409):
                raise

    def request(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None,
        content_type: str = "application/json", timeout: float = TIMEOUT_SECONDS, accept: str = "application/json",
    ) -> dict[str, Any]:  # fmt: skip
        for patience in range(TOO_MANY_TRIES, -1, -1):
            response = self._send(method, path, query, body, content_type, (5.0, timeout), accept)
            if response.status != 429 or not patience:
                break
            response.drain_conn()
            time.sleep(_seconds(response.headers.get("Retry-After")) * random.uniform(1.0, 1.5))
        try:
            answer = json.loads(response.data or b"{}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise refusal(0, "", f"{type(error).__name__}: {error}") from error
        except ValueError as error:
            raise refusal(response.status if response.status >= 400 else 0, "", "no JSON in the answer") from error
        if response.status >= 400:
            raise refusal(response.status, str(answer.get("reason") or ""), str(answer.get("message") or answer))
        found: dict[str, Any] = answer
        return found

    def stream(
        self, path: str, *, query: Mapping[str, Any], timeout: float, accept: str = "application/json"
    ) -> Stream:
        """`timeout`: seconds without a byte after which the connection counts as broken."""
        response = self._send("GET", path, query, None, "", (5.0, timeout), accept)
        if response.status < 400:
            return Stream(response)
        try:
            text = response.data.decode(errors="replace")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise refusal(0, "", f"{type(error).__name__}: {error}") from error
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"message": text}
        raise refusal(response.status, str(answer.get("reason") or ""), str(answer.get("message") or ""))

    def together(self, action: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """`action` of each item, PARALLEL at a time; all of them are tried, then the first failure is raised."""
        self._own()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="kubernetes")
        futures = [self._pool.submit(action, item) for item in items]
        failures = [error for future in futures if (error := future.exception())]
        if failures:
            raise next((e for e in failures if isinstance(e, BackendError) and e.permanent), failures[0])
        return [future.result() for future in futures]

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown(wait=False)

    def _own(self) -> None:
        """A process forked from one that has asked has its memory, but neither its threads nor a right to its
        connections."""
        if self._pid != os.getpid():
            self._pid, self._made, self._pool, self._lock = os.getpid(), None, None, threading.Lock()

    def _send(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, content_type: str,
        timeout: tuple[float, float], accept: str,
    ) -> urllib3.HTTPResponse:  # fmt: skip
        api = self._api()
        headers = {"Accept": accept, "User-Agent": "fermi"}
        if body is not None:
            headers["Content-Type"] = content_type
        url = api.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        try:
            api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            answer = api.rest_client.request(method, url, headers=headers, body=body, _request_timeout=timeout)
        except ApiException as error:
            raise refusal(error.status or 0, "", str(error.reason)) from error
        except (urllib3.exceptions.HTTPError, OpenApiException, OSError) as error:
            raise refusal(0, "", f"{type(error).__name__}: {error}") from error
        response: urllib3.HTTPResponse = answer.response
        return response

    def _api(self) -> kubernetes.client.ApiClient:
        self._own()
        with self._lock:
            if self._made is None:
                self._made = _connect(self._connection)
            return self._made


def _seconds(text: str | None) -> float:
    """Of a Retry-After."""
    return min(float(text), 10.0) if text and text.isdecimal() else 1.0


def _connect(connection: Mapping[str, Any]) -> kubernetes.client.ApiClient:
    """Raises BackendError when there is no way described to reach a cluster."""
    configuration = kubernetes.client.Configuration()
    try:
        if connection.get("in_cluster"):
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        else:
            kubernetes.config.load_kube_config(
                config_file=connection.get("kubeconfig") or None, context=connection.get("context") or None,
                client_configuration=configuration, persist_config=False,
            )  # fmt: skip
    except (ConfigException, OSError, ValueError) as error:
        raise BackendError("ENGINE_NOT_CONFIGURED", why=str(error)) from error
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.retries = False
    return kubernetes.client.ApiClient(configuration)
