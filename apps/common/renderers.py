"""JSON rendering and parsing with orjson."""

from collections.abc import Iterable, Mapping
from typing import IO, Any

import orjson
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from apps.common import bounds
from apps.common.encoding import encode_json
from apps.common.errors import ApiError
from fermi.comments import find_comment

ORJSON_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


class JSONRenderer(BaseRenderer):
    """Renders times as ISO 8601 with a Z, and what orjson does not know as its string (lazy texts, UUIDs, paths)."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return render_json(data)


def render_json(data: Any) -> bytes:
    """Return `data` as JSON."""
    return encode_json(data, ORJSON_OPTIONS)


class JSONOnlyNegotiation(DefaultContentNegotiation):
    """Chooses JSON whatever the Accept header says: views make streams and downloads themselves, and EventSource asks
    for its own type only."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type


def read_body(stream: IO[bytes], request: Request) -> bytes:
    """Return the body of the request. Raises ApiError 413 if it is larger than its operation allows."""
    limit = bounds.get_body_limit(request.method, request.path).most()
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise ApiError(413, "BODY_TOO_LARGE", limit=limit)
    return body


class JSONParser(BaseParser):
    """Parses strict JSON: no NaN, no lone surrogates, and no more bytes and values than `bounds` allows."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        assert parser_context is not None
        body = read_body(stream, parser_context["request"])
        if bounds.has_too_many_values(body):
            raise ApiError(400, "BODY_TOO_MANY_VALUES", limit=bounds.MAX_VALUES)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if comment := find_comment(error.doc, error.pos):
                raise ApiError(400, "JSON_COMMENT", line=comment.line, comment=comment.text) from error
            raise ParseError(str(error)) from error
