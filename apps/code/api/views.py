"""Endpoints of code snapshots."""

import io
from typing import IO, cast

from django.http import FileResponse, HttpResponse

from apps.accounts import access
from apps.accounts.models import User
from apps.code import fetch, git, selectors, store, uploads
from apps.code.api import serializers
from apps.code.models import Fetch
from apps.common import bounds
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError, ProblemsError
from fermi.jobs.snapshot import ARCHIVE_NAME

STREAM = "application/octet-stream"


class LimitsView(APIView):
    @operation("getCodeLimits", scope="any", data=serializers.CodeLimits)
    def get(self, request: Request) -> Data:
        """Return how much a snapshot may contain: bytes, bytes of a file, and files."""
        return uploads.get_limits()


class SnapshotsView(APIView):
    @operation("listSnapshots", scope="code:read", query=serializers.SnapshotQuery, page=serializers.SnapshotItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the code snapshots of your projects, newest first."""
        return paginate_rows(selectors.list_snapshots(request.user, query), query, selectors.serialize_snapshot)


class SnapshotView(APIView):
    @operation("getSnapshot", scope="code:read", data=serializers.SnapshotItem)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """Return one snapshot, by its id or the first characters of it."""
        return selectors.serialize_snapshot(selectors.get_snapshot(request.user, snapshot_id))

    @operation(
        "putSnapshot",
        scope="code:write",
        query=serializers.ProjectQuery,
        request_media=STREAM,
        data=serializers.SnapshotMissing,
    )
    def put(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """Store a manifest; the snapshot's id is the manifest's SHA-256. Returns which contents the project does not
        have yet. 413 above a limit."""
        manifest = open_body(request).read()
        return uploads.receive_manifest(request.user, query.get("project"), snapshot_id, manifest)


class SnapshotBlobsView(APIView):
    @operation(
        "putSnapshotBlobs",
        scope="code:write",
        query=serializers.ProjectQuery,
        request_media=STREAM,
        data=serializers.SnapshotStored,
    )
    def put(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """Store contents, as many as fit into a request: for each a line `<sha256> <size>` followed by its bytes."""
        return uploads.receive_blobs(request.user, query.get("project"), snapshot_id, open_body(request))


class SnapshotFinishView(APIView):
    @operation(
        "finishSnapshot", scope="code:write", body=serializers.SnapshotFinishRequest, data=serializers.SnapshotItem
    )
    def post(self, request: Request, snapshot_id: str, body: Body) -> Data:
        """Finish a snapshot whose contents have all been sent; 409 where some are missing. Repeating the request
        changes nothing."""
        return selectors.serialize_snapshot(
            uploads.finish_upload(request.user, digest=snapshot_id, **{"project_id": None, **body})
        )


class SnapshotTreeView(APIView):
    @operation("listSnapshotTree", scope="code:read", query=serializers.PathQuery, data=serializers.SnapshotTree)
    def get(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """List one folder of a snapshot."""
        return {"items": selectors.list_folder(selectors.get_snapshot(request.user, snapshot_id).digest, query["path"])}


class SnapshotFileView(APIView):
    @operation("getSnapshotFile", scope="code:read", query=serializers.FileQuery, data=serializers.SnapshotFile)
    def get(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """Return one file of a snapshot; its content only where it is text."""
        return selectors.serialize_file(selectors.get_snapshot(request.user, snapshot_id).digest, query["path"])


class SnapshotPatchView(APIView):
    @operation("getSnapshotPatch", scope="code:read", data=serializers.SnapshotPatch, cost=10)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """Return how the snapshot differed from its Git commit when it was sent."""
        return {"patch": selectors.get_snapshot(request.user, snapshot_id).patch}


class SnapshotDiffView(APIView):
    @operation("diffSnapshots", scope="code:read", query=serializers.DiffQuery, data=serializers.SnapshotDiff, cost=10)
    def get(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """Return what changed between another snapshot and this one."""
        after, before = (selectors.get_snapshot(request.user, key).digest for key in (snapshot_id, query["before"]))
        return selectors.compare_snapshots(before, after)


class SnapshotManifestView(APIView):
    @operation("getSnapshotManifest", scope="code:read", media=STREAM)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """Return the manifest, the bytes whose SHA-256 is the snapshot's id: path, mode, size and SHA-256 of each file,
        as JSON."""
        manifest = store.read_manifest(selectors.get_snapshot(request.user, snapshot_id).digest)
        return HttpResponse(manifest, content_type=STREAM)


class SnapshotArchiveView(APIView):
    @operation("getSnapshotArchive", scope="code:read", media=STREAM, cost=10)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """Return the whole snapshot as a tar archive."""
        row = selectors.get_snapshot(request.user, snapshot_id)
        try:
            archive = store.ensure_archive(row.digest) / ARCHIVE_NAME
        except (store.ContentMissingError, OSError) as error:
            raise ApiError(503, "CODE_LOST", why=str(error)) from error
        name = f"{row.digest[:12]}.tar"
        return FileResponse(archive.open("rb"), as_attachment=True, filename=name, content_type=STREAM)


class FetchesView(APIView):
    @operation(
        "fetchCode", scope="code:write", body=serializers.FetchRequest, data=serializers.FetchItem, status=201, cost=10
    )
    def post(self, request: Request, body: Body) -> Data:
        """Start fetching a revision of a Git repository into a snapshot."""
        asked = {name: value for name, value in body["git"].items() if value}
        project = uploads.get_upload_project(request.user, body.get("project_id"))
        if wrong := git.check_request(asked["url"], asked["revision"], "git"):
            raise ProblemsError(wrong)
        return selectors.serialize_fetch(fetch.create_fetch(request.user, project, {"git": asked}))


class FetchView(APIView):
    @operation("getCodeFetch", scope="code:read", data=serializers.FetchItem)
    def get(self, request: Request, fetch_id: str) -> Data:
        """Return the progress of fetching from Git."""
        rows = Fetch.objects.select_related("snapshot")
        return selectors.serialize_fetch(access.get_object(rows, cast(User, request.user), fetch_id))


def open_body(request: Request) -> IO[bytes]:
    """Return the body of a manifest or of contents as a stream: it may be larger than others. Raises ApiError 413 if
    Content-Length is above the limit."""
    limit = bounds.get_body_limit(request.method, request.path).most()
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit:
        raise ApiError(413, "BODY_TOO_LARGE", limit=limit)
    return cast(IO[bytes], request.stream or io.BytesIO())
