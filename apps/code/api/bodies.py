"""Request bodies of manifests and contents: they may be larger than others, and are not read into memory."""

import io
from typing import IO, cast

from apps.common import bounds
from apps.common.api import Request
from apps.common.errors import ApiError


def open_body(request: Request) -> IO[bytes]:
    """Return the body as a stream. Raises ApiError 413 if Content-Length is above the limit."""
    limit = bounds.get_body_limit(request.method, request.path).most()
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit:
        raise ApiError(413, "BODY_TOO_LARGE", limit=limit)
    return cast(IO[bytes], request.stream or io.BytesIO())
