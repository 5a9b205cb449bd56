"""Endpoints of a project's files: listing, downloads, uploads in pieces, moving and deleting."""

import io
from typing import IO, Any, cast

from django.conf import settings
from rest_framework.parsers import BaseParser

from apps.accounts import access
from apps.accounts.models import Project
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.files import paths, selectors
from apps.files.api import responses, serializers
from apps.files.services import folders, library_caches, uploads


class PieceParser(BaseParser):
    """Parser that returns the body, a piece of a file, as a stream: behind the platform's ASGI server a file on disk,
    once it is larger than a few megabytes."""

    media_type = "application/octet-stream"

    def parse(self, stream: IO[Any], media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        return {"file": stream}


def _get_project(request: Request, project_id: str) -> Project:
    return access.get_project(request.user, project_id)


class FilesView(APIView):
    @operation("listFiles", scope="files:read", query=serializers.FileQuery, page=serializers.FileItem)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List a folder, folders first; with `search` everything below it."""
        project = _get_project(request, project_id)
        rows = selectors.list_files(project, paths.normalize_path(query["path"], root=True), query["search"])
        return paginate_rows(rows, {**query, "ordering": ["-folder", *query["ordering"]]}, selectors.serialize_file)

    @operation("deleteFile", scope="files:write", query=serializers.FileDeleteQuery)
    def delete(self, request: Request, project_id: str, query: Query) -> None:
        """Delete a file or folder (members their own, maintainers anybody's). 409 where a folder is not empty or a file
        is in use."""
        folders.delete_file(
            request.user, _get_project(request, project_id), query["path"], recursive=query["recursive"]
        )


class FileUseView(APIView):
    @operation("getFileUse", scope="files:read", data=serializers.FileUse)
    def get(self, request: Request, project_id: str) -> Data:
        """Return how much the project stores, how much it may store, and at which path its ranks see the files."""
        return selectors.serialize_usage(_get_project(request, project_id))


class LibraryCacheView(APIView):
    @operation("getLibraryCache", scope="files:read", data=serializers.LibraryCache)
    def get(self, request: Request, project_id: str) -> Data:
        """Return the size of what libraries of the project's tasks keep in its cache, and its largest parts."""
        return selectors.serialize_cache(request.user, _get_project(request, project_id))


class LibraryCacheCleanView(APIView):
    @operation(
        "cleanLibraryCache",
        scope="files:write",
        body=serializers.LibraryCacheCleanRequest,
        data=serializers.LibraryCache,
    )
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Have the cache cleaned soon (maintainer): what was not used for the longest time goes first, and nothing that
        a running task may use."""
        project = _get_project(request, project_id)
        library_caches.request_cleanup(request.user, project, body["keepBytes"])
        return selectors.serialize_cache(request.user, project)


class FileContentView(APIView):
    @operation(
        "downloadFile",
        scope="files:read",
        query=serializers.FileKey,
        media="application/octet-stream",
        headers=["Range", "If-None-Match"],
    )
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """Return a file's content, or one range of it. Its ETag is its SHA-256."""
        project, path = _get_project(request, project_id), paths.normalize_path(query["path"])
        file = folders.get_file(project, path)
        if file.folder:
            raise ApiError(409, "FILE_IS_FOLDER", "path", path=path)
        return responses.make_file_response(
            request._request, selectors.open_file(file), name=file.name, size=file.size, tag=file.sha256
        )


class FileArchiveView(APIView):
    @operation(
        "downloadFiles",
        cost=10,
        scope="files:read",
        query=serializers.ArchiveQuery,
        media="application/zip",
        other_media="application/x-tar",
    )
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """Return a folder with everything in it as one archive (zip or tar), which is made while it is sent."""
        project, path = _get_project(request, project_id), paths.normalize_path(query["path"], root=True)
        if path and not folders.get_file(project, path).folder:
            raise ApiError(409, "FILE_NOT_FOLDER", "path", path=path)
        name = paths.split_path(path)[1] or project.name
        return responses.make_archive_response(query["format"], name, selectors.list_archive_members(project, path))


class FoldersView(APIView):
    @operation(
        "makeFolder", scope="files:write", body=serializers.FolderCreateRequest, data=serializers.FileItem, status=201
    )
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Create a folder and its missing parents (member). Repeating the request changes nothing."""
        return selectors.serialize_file(
            folders.create_folder(request.user, _get_project(request, project_id), body["path"])
        )


class FileMoveView(APIView):
    @operation("moveFile", scope="files:write", body=serializers.FileMoveRequest, data=serializers.FileItem)
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Move or rename a file, or a folder with everything in it (members their own, maintainers anybody's). 409
        where the destination exists."""
        moved = folders.move_file(request.user, _get_project(request, project_id), body["path"], body["to"])
        return selectors.serialize_file(moved)


class UploadsView(APIView):
    @operation("listUploads", scope="files:read", query=serializers.UploadQuery, page=serializers.UploadItem)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List uploads that are in progress or have failed: your own; all for a maintainer."""
        rows = selectors.list_uploads(request.user, _get_project(request, project_id))
        return paginate_rows(rows.filter(path__icontains=query["search"]), query, selectors.serialize_upload)

    @operation(
        "beginUpload",
        scope="files:write",
        body=serializers.UploadCreateRequest,
        data=serializers.UploadItem,
        status=201,
    )
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Start an upload, and return the `offset` from which to send pieces (member). The same path, size and hash
        give the same upload again, and `done` where that content is stored already."""
        return selectors.serialize_upload(uploads.start_upload(request.user, _get_project(request, project_id), **body))


class UploadView(APIView):
    @operation("getUpload", scope="files:read", data=serializers.UploadItem)
    def get(self, request: Request, project_id: str, upload_id: str) -> Data:
        """Return the progress of an upload."""
        return selectors.serialize_upload(
            uploads.get_upload(request.user, _get_project(request, project_id), upload_id)
        )

    @operation("cancelUpload", scope="files:write")
    def delete(self, request: Request, project_id: str, upload_id: str) -> None:
        """Cancel an upload."""
        uploads.cancel_upload(request.user, _get_project(request, project_id), upload_id)


class UploadContentView(APIView):
    parser_classes = (PieceParser,)

    @operation(
        "sendPiece",
        scope="files:write",
        query=serializers.PieceQuery,
        request_media="application/octet-stream",
        data=serializers.UploadItem,
    )
    def put(self, request: Request, project_id: str, upload_id: str, query: Query) -> Data:
        """Store a piece of the file that begins at byte `offset`, at most 16 MiB. Sending a piece again changes
        nothing; 409 where bytes before it are missing."""
        project = _get_project(request, project_id)
        file = cast(IO[bytes], cast(dict[str, Any], request.data).get("file") or io.BytesIO())
        return selectors.serialize_upload(
            uploads.append_piece(request.user, project, upload_id, query["offset"], _open_piece(file))
        )


class UploadFinishView(APIView):
    @operation("finishUpload", scope="files:write", data=serializers.UploadItem)
    def post(self, request: Request, project_id: str, upload_id: str) -> Data:
        """Finish an upload of which all bytes have been sent: its hash is checked, and the whole file appears at its
        path. A large one is `checking` for a while. Repeating the request changes nothing."""
        return selectors.serialize_upload(
            uploads.finish_upload(request.user, _get_project(request, project_id), upload_id)
        )


def _open_piece(body: Any) -> IO[bytes]:
    """Return the body as a seekable file. Behind the platform's server it is one; elsewhere (tests) it is a stream,
    which is read. Raises ApiError 413."""
    inner = getattr(body, "_stream", body)
    if not (hasattr(inner, "seekable") and inner.seekable()):
        inner = io.BytesIO(body.read(settings.FILES_PIECE_BYTES + 1))
    inner.seek(0, io.SEEK_END)
    if inner.tell() > settings.FILES_PIECE_BYTES:
        raise ApiError(413, "BODY_TOO_LARGE", limit=settings.FILES_PIECE_BYTES)
    inner.seek(0)
    return cast(IO[bytes], inner)
