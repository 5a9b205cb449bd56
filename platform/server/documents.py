"""Pages of the documentation that agents read: the index at /llms.txt and what it links to, below /docs."""

import re
from functools import cache
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from server.paths import ROOT

DOCS = ROOT / "docs"
INDEX = "llms.txt"
_LINK = re.compile(r"\]\(([^)#:\s]+)\)")
_TYPES = {".md": "text/markdown", ".json": "application/json", ".txt": "text/plain"}


@cache
def list_pages() -> frozenset[str]:
    """Return the names of the pages that are served: the index and those that it links to. Empty where the
    documentation is not installed."""
    try:
        text = (DOCS / INDEX).read_text("utf-8")
    except FileNotFoundError:
        return frozenset()
    return frozenset((INDEX, *_LINK.findall(text)))


@require_safe
def serve_index(request: HttpRequest) -> HttpResponse:
    """Return the index, with links to the pages below /docs. Raises Http404."""
    return _make_response(INDEX, _LINK.sub(r"](/docs/\1)", _read_page(INDEX).decode()).encode())


@require_safe
def serve_page(request: HttpRequest, name: str) -> HttpResponse:
    """Return a page that the index names. Raises Http404 for any other name."""
    return _make_response(name, _read_page(name))


def _read_page(name: str) -> bytes:
    if name not in list_pages():
        raise Http404
    try:
        return (DOCS / name).read_bytes()
    except FileNotFoundError as error:
        raise Http404 from error


def _make_response(name: str, content: bytes) -> HttpResponse:
    kind = _TYPES.get(Path(name).suffix, "text/plain")
    return HttpResponse(content, content_type=f"{kind}; charset=utf-8")
