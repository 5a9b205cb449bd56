"""How an endpoint is written: parse the request, call one service, return the answer.

    class TokenCreateRequest(serializers.Serializer):      # what comes in: flat, uniquely named
        name = serializers.CharField(max_length=100)
        expiresInDays = serializers.IntegerField(source="expires_in_days", min_value=1, required=False)

    class TokenCreated(serializers.Serializer):            # what goes out: documents it, converts nothing
        id = serializers.CharField()
        token = serializers.CharField()

    class Tokens(APIView):
        @operation("listTokens", scope="tokens:read", query=PageQuery, page=TokenItem)
        def get(self, request: Request, query: Query) -> Data:
            "Your tokens."
            return page(selectors.tokens(request.user), query)

        @operation("createToken", scope="tokens:write", body=TokenCreateRequest, data=TokenCreated, status=201)
        def post(self, request: Request, body: Body) -> Data:
            "A new token, shown this once."
            return services.create_token(request.user, **body)

`@operation` parses what it documents and documents what it parses, so that the two cannot drift apart: `body` and
`query` arrive validated (`source` gives services their own names), the value returned becomes `data` of the envelope.
Services raise `ApiError` or `ProblemsError`. A method that returns a response (a stream, a download) keeps it. The path
belongs to `<app>/api/urls.py`, spelled with converters: `path("tokens/<str:token_id>", …)`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from msgspec import Struct
from rest_framework.permissions import AllowAny
from rest_framework.request import Request as AnyRequest
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.common.errors import ApiError
from apps.common.openapi import ErrorEnvelope, Shape, is_struct, make_envelope, make_page_shape, make_reference
from apps.common.pages import PageQuery, paginate_rows
from apps.common.request_shapes import (
    NoFields,
    Strict,
    parse_body,
    parse_body_partially,
    parse_query,
    read_struct,
    refuse_body,
)
from apps.common.texts import render_text

__all__ = ["APIView", "Body", "Data", "PageQuery", "Query", "Request", "make_response", "operation", "paginate_rows"]


class Request(AnyRequest):
    """A request of a signed-in user, an `accounts.User`, which the default permission requires."""

    user: Any


Body: TypeAlias = dict[str, Any]
Query: TypeAlias = dict[str, Any]
Data: TypeAlias = Mapping[str, Any] | HttpResponseBase | None


_HEADERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {"type": "string", "maxLength": 200},
    "If-None-Match": {"type": "string", "maxLength": 1000},
    "Range": {"type": "string", "maxLength": 100},
    "Last-Event-ID": {"type": "string"},
}
_WRITE_METHODS = ("POST", "PUT", "PATCH", "DELETE")
_CONTENT = {
    **dict.fromkeys(
        ("application/gzip", "application/octet-stream", "application/x-tar", "application/zip"), OpenApiTypes.BINARY
    ),
    "text/event-stream": OpenApiTypes.ANY,
}


def make_response(data: Any, *, status: int = 200, message: str = "OK", **params: Any) -> Response:
    """Return `data` in the envelope; `message` is a code of `fermi.messages`. A creation is HTTP 201 with `code`
    200."""
    return Response({"code": 200, "message": render_text(message, params)[0], "data": data}, status=status)


def operation(
    name: str,
    *,
    scope: str,
    query: Shape | None = None,
    body: Shape | type[Struct] | None = None,
    partial: bool = False,
    collects_problems: bool = False,
    data: Shape | None = None,
    nullable: bool = False,
    page: Shape | None = None,
    media: str | None = None,
    request_media: str | None = None,
    other_media: str | None = None,
    status: int = 200,
    message: str = "OK",
    headers: Sequence[str] = (),
    cost: int = 1,
) -> Callable[[Callable[..., Data]], Callable[..., HttpResponseBase]]:
    """Decorate a view's method: parse its request and document it in OpenAPI; see the module's docstring.

    `name` is the operation's id in OpenAPI; `scope` the right that a token needs for it (`apps.accounts.scopes`), which
    the document states as `x-scope`; `data` one object (with `nullable`: or null) or `page` a page of them;
    `request_media` the type of a body that is not JSON, which the view's parser reads; `media` the type of an answer
    that is not JSON, `other_media` one that it may have besides; `partial` is for PATCH. With `collects_problems`, and
    for a body that is a msgspec struct, the method also gets `wrong`: the problems with the body's shape, whose fields
    were left out. `cost`: as how many requests a call counts against the caller's rate limit, which the document states
    as `x-cost` where it is more than one.
    """
    shape = make_page_shape(page) if page else data
    documented: Any = (
        {(status, media): _CONTENT.get(media, OpenApiTypes.STR)}
        if media
        else {status: make_envelope(shape, nullable=nullable)}
    )
    if other_media:
        documented[status, other_media] = _CONTENT.get(other_media, OpenApiTypes.STR)
    document = extend_schema(
        operation_id=name,
        parameters=[
            *([query or Strict] if query or body else []),
            *(OpenApiParameter(header, _HEADERS[header], OpenApiParameter.HEADER) for header in headers),
        ],
        request={request_media: _CONTENT[request_media]}
        if request_media
        else make_reference(body)
        if is_struct(body)
        else body,
        responses={**documented, "default": ErrorEnvelope},
        extensions={"x-scope": scope, **({"x-cost": cost} if cost > 1 else {})},
    )

    def decorate(method: Callable[..., Data]) -> Callable[..., HttpResponseBase]:
        @wraps(method)
        def endpoint(view: APIView, request: Request, **path: str) -> HttpResponseBase:
            if any("\x00" in value for value in path.values()):  # PostgreSQL's text cannot hold it
                raise ApiError(404, "NOT_FOUND")
            asked = parse_query(query or (Strict if body else NoFields), request.query_params)
            if query:
                path["query"] = asked  # type: ignore[assignment]
            if body is None and request_media is None and request.method in _WRITE_METHODS:
                refuse_body(request.data)
            elif is_struct(body):
                path["body"], path["wrong"] = read_struct(body, request.data)  # type: ignore[assignment]
            elif body and collects_problems:
                path["body"], path["wrong"] = parse_body_partially(body, request.data, partial=partial)  # type: ignore[assignment,arg-type]
            elif body:
                path["body"] = parse_body(body, request.data, partial=partial)  # type: ignore[assignment,arg-type]
            found = method(view, request, **path)
            if isinstance(found, HttpResponseBase):
                return found
            return make_response(found, status=status, message=message)

        endpoint.scope = scope  # type: ignore[attr-defined]
        endpoint.operation_id = name  # type: ignore[attr-defined]
        endpoint.cost = cost  # type: ignore[attr-defined]
        return document(endpoint)

    return decorate


@extend_schema(exclude=True)
class UnknownPathView(APIView):
    """Answer for every path under the base path that no other view has: 404 in the envelope instead of a page."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def initial(self, request: AnyRequest, *args: Any, **kwargs: Any) -> None:
        raise ApiError(404, "NO_SUCH_ADDRESS", path=request.path)
