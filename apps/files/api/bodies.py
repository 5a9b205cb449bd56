"""Request bodies of pieces of files: they may be larger than others, and are not read into memory."""

from typing import IO, Any

from rest_framework.parsers import BaseParser


class PieceParser(BaseParser):
    """Parser that returns the body as a stream: behind the platform's ASGI server a file on disk, once it is larger
    than a few megabytes."""

    media_type = "application/octet-stream"

    def parse(self, stream: IO[Any], media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        return {"file": stream}
