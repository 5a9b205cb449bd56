"""Limits of a request's size. All of them are checked before anything else is done with a body.

    bytes of a body, by operation   before Django, by Content-Length and while it is read (`server.asgi`); in parsers
    values of a JSON body           before it is parsed (`renderers.JSONParser`, heartbeats)
    entries of a list or a map      before they are looked at (`requests`, `fermi.jobs.json_shape`)
    problems that are answered      `handler.envelope`

A serializer may set a lower bound of its own (`max_length` of a ListField). What it leaves open is bounded here, and
the API's document says so (`openapi.Truthful`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

MIB = 1 << 20
MAX_BODY_BYTES = MIB  # bytes, where BODIES says nothing else
MAX_SIGN_IN_BYTES = 16 << 10
MAX_EXCHANGE_BYTES = 64 << 10  # an ID token of GitLab names up to 200 groups
MAX_HEARTBEAT_BYTES = 2 * MIB  # of up to 1,024 workers, and what their host says of its dev environments

MAX_VALUES = 200_000  # of a JSON body
MAX_DEPTH = 64  # levels of objects and lists
MAX_ITEMS = 10_000  # of any list
MAX_ENTRIES = 1_000  # of a map of the caller's own names: variables, labels, options
MAX_NAMES = 256  # of an object whose names are known, and of which some may be unknown
MAX_PROBLEMS = 100  # in an answer

MAX_UPLOADS = 100  # of a person in a project, under way
MAX_SNAPSHOTS = 100  # of code that a person has begun to send and not finished
MAX_TOKENS = 200  # of a person
MAX_STREAMS = 100  # pages that follow a task, of a person in a web process
MAX_CHANNELS = 200  # terminals, commands and tunnels, of a person in a web process

MAX_ARTIFACT_BYTES = 5 << 30  # of a file that a script logs to MLflow's API

HEARTBEAT_PATH = "/api/v1/workers/heartbeat"
EXCHANGE_PATH = "/api/v1/token-exchange"


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """Limit of the body of some requests; `most` returns it in bytes. `authenticated_only`: the body is read only if
    the request's headers authenticate a user."""

    method: str
    path: re.Pattern[str]
    most: Callable[[], int]
    authenticated_only: bool = False


BODY_LIMITS = (
    BodyLimit("POST", re.compile(HEARTBEAT_PATH), lambda: MAX_HEARTBEAT_BYTES),
    BodyLimit("POST", re.compile(EXCHANGE_PATH), lambda: MAX_EXCHANGE_BYTES),
    BodyLimit("POST", re.compile("/_allauth/.*"), lambda: MAX_SIGN_IN_BYTES),
    BodyLimit("POST", re.compile("/oauth/.*"), lambda: MAX_SIGN_IN_BYTES),
    # a piece of a file
    BodyLimit(
        "PUT", re.compile("/api/v1/projects/[^/]+/file-uploads/[^/]+/content"), lambda: settings.FILES_PIECE_BYTES, True
    ),
    # an artifact of a run, as a script logs it
    BodyLimit("PUT", re.compile("/mlflow/api/2.0/mlflow-artifacts/artifacts/.*"), lambda: MAX_ARTIFACT_BYTES, True),
    # the manifest of a snapshot of code: path, mode, size and hash of each file
    BodyLimit(
        "PUT",
        re.compile("/api/v1/code/snapshots/[^/]+"),
        lambda: max(MAX_BODY_BYTES, 512 * settings.CODE_MAX_FILES),
        True,
    ),
    # its contents: one file of any size, or several of 32 MiB together
    BodyLimit(
        "PUT", re.compile("/api/v1/code/snapshots/[^/]+/blobs"), lambda: (settings.CODE_MAX_FILE_MB + 32) * MIB, True
    ),
)
_DEFAULT_LIMIT = BodyLimit("", re.compile(""), lambda: MAX_BODY_BYTES)


def get_max_manifest_bytes() -> int:
    """Return how many bytes a snapshot's manifest may have, wherever it comes from."""
    return max(64 * MIB, 512 * settings.CODE_MAX_FILES)


def get_body_limit(method: str | None, path: str) -> BodyLimit:
    """Return the limit of the body of such a request."""
    return next((one for one in BODY_LIMITS if one.method == method and one.path.fullmatch(path)), _DEFAULT_LIMIT)


def has_too_many_values(body: bytes) -> bool:
    """Return True if a JSON text has more than MAX_VALUES values, without parsing it: each value but the first follows
    a comma or an opening bracket. Commas within texts are counted too; no sensible text comes near the limit."""
    return body.count(b",") + body.count(b"[") + body.count(b"{") > MAX_VALUES
