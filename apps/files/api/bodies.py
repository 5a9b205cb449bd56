"""Pieces of files: bodies that are larger than others may be, and are not read into memory."""

from typing import IO, Any

from rest_framework.parsers import BaseParser


class PieceParser(BaseParser):
    """The body as it came: behind our ASGI server a file on disk, once it is larger than a few megabytes."""

    media_type = "application/octet-stream"

    def parse(self, stream: IO[Any], media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        return {"file": stream}
