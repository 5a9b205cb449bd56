"""Pieces of files: bodies that are larger than others may be, and are not read into memory."""

import re
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.parsers import BaseParser

PIECES = re.compile(r"/api/v1/projects/[^/]+/file-uploads/[^/]+/content")


def largest(scope: Mapping[str, Any]) -> int | None:
    """How many bytes the body of a request may have that carries a piece; None of any other."""
    is_piece = scope["method"] == "PUT" and PIECES.fullmatch(scope["path"])
    return settings.FILES_PIECE_BYTES if is_piece else None


class PieceParser(BaseParser):
    """The body as it came: behind our ASGI server a file on disk, once it is larger than a few megabytes."""

    media_type = "application/octet-stream"

    def parse(self, stream: IO[Any], media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        return {"file": stream}
