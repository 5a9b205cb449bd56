"""Manifests and contents of snapshots: bodies that are larger than others may be, and are not read into memory."""

import io
import re
from collections.abc import Mapping
from typing import IO, Any, cast

from django.conf import settings

from apps.common.api import Request
from apps.common.errors import ApiError

_PATHS = re.compile(r"/api/v1/code/snapshots/[^/]+(/blobs)?")
MB = 1 << 20


def largest(scope: Mapping[str, Any]) -> int | None:
    """How many bytes the body of such a request may have; None of any other."""
    return _most() if scope["method"] == "PUT" and _PATHS.fullmatch(scope["path"]) else None


def _most() -> int:
    """One file may be as large as may be, and several go together up to 32 MiB."""
    return (settings.CODE_MAX_FILE_MB + 32) * MB


def stream(request: Request) -> IO[bytes]:
    """As it came. Raises ApiError for one that was too long to be kept."""
    if int(request.META.get("CONTENT_LENGTH") or 0) > _most():
        raise ApiError(413, "BODY_TOO_LARGE", limit=_most())
    return cast(IO[bytes], request.stream or io.BytesIO())
