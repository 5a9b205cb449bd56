"""Download responses: ranges, conditional requests, archives. Browsers never show them on the console's origin: an
uploaded file could be a page."""

import re
from collections.abc import Iterable
from typing import BinaryIO
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from apps.common.errors import ApiError
from apps.files import archives
from apps.files.archives import ArchiveFormat, ArchiveMember
from apps.files.store import read_chunks

RANGE_PATTERN = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


def make_file_response(request: HttpRequest, file: BinaryIO, *, name: str, size: int, tag: str) -> HttpResponseBase:
    """Return the whole file, or the one requested range (RFC 9110, 14.2); `tag` names the content. Closes the file
    where nothing is sent. Raises ApiError 416."""
    etag = f'"{tag}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", **_build_attachment_headers(name)}
    if _matches_etag(request.headers.get("If-None-Match", ""), etag):
        file.close()
        return HttpResponse(status=304, headers=headers)
    begin, end = 0, size
    asked = request.headers.get("Range", "")
    if asked and request.headers.get("If-Range", etag) == etag and (found := RANGE_PATTERN.fullmatch(asked.strip())):
        first, last = found.groups()
        if first:
            begin, end = int(first), min(int(last) + 1 if last else size, size)
        elif last:
            begin = max(size - int(last), 0)
        if begin >= end or not (first or last):
            file.close()
            raise ApiError(416, "RANGE_OUTSIDE", found=asked[:60], size=size)
    part = (begin, end) != (0, size)
    if part:
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - begin)
    if request.method == "HEAD":
        file.close()
        return HttpResponse(headers=headers, content_type="application/octet-stream")
    return StreamingHttpResponse(
        read_chunks(file, begin, end - begin),
        status=206 if part else 200,
        headers=headers,
        content_type="application/octet-stream",
    )


def make_archive_response(form: ArchiveFormat, name: str, members: Iterable[ArchiveMember]) -> HttpResponseBase:
    """Return a streamed archive of the members."""
    body = archives.stream_archive(form, members)
    return StreamingHttpResponse(
        body, headers=_build_attachment_headers(f"{name}.{form}"), content_type=archives.MEDIA_TYPES[form]
    )


def _build_attachment_headers(name: str) -> dict[str, str]:
    """Return the headers of a download (RFC 6266), with a plain `filename` for clients that know nothing else."""
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII) or "file"
    return {
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
    }


def _matches_etag(header: str, etag: str) -> bool:
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in header.split(",") if one.strip())
