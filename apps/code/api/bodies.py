"""Manifests and contents of snapshots: bodies that are larger than others may be, and are not read into memory."""

import io
from typing import IO, cast

from apps.common import bounds
from apps.common.api import Request
from apps.common.errors import ApiError


def stream(request: Request) -> IO[bytes]:
    """As it came. Raises ApiError for one that is too long."""
    limit = bounds.body(request.method, request.path).most()
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit:
        raise ApiError(413, "BODY_TOO_LARGE", limit=limit)
    return cast(IO[bytes], request.stream or io.BytesIO())
