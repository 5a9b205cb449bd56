"""Endpoints of code snapshots."""

from typing import cast

from django.conf import settings
from django.http import FileResponse, HttpResponse

from apps.accounts import access
from apps.accounts.models import User
from apps.code import fetch, git, selectors, store, uploads
from apps.code.api import bodies, serializers
from apps.code.models import Fetch
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError, ProblemsError
from fermi.jobs.snapshot import ARCHIVE_NAME

STREAM = "application/octet-stream"


class LimitsView(APIView):
    @operation("getCodeLimits", data=serializers.CodeLimits)
    def get(self, request: Request) -> Data:
        """How much a snapshot may hold."""
        return {
            "files": settings.CODE_MAX_FILES,
            "fileMb": settings.CODE_MAX_FILE_MB,
            "totalMb": settings.CODE_MAX_MB,
        }


class SnapshotsView(APIView):
    @operation("listSnapshots", query=serializers.SnapshotQuery, page=serializers.SnapshotItem)
    def get(self, request: Request, query: Query) -> Data:
        """Code of your projects, newest first."""
        return paginate_rows(selectors.list_snapshots(request.user, query), query, selectors.serialize_snapshot)


class SnapshotView(APIView):
    @operation("getSnapshot", data=serializers.SnapshotItem)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """One snapshot, by its id or a beginning of it."""
        return selectors.serialize_snapshot(selectors.get_snapshot(request.user, snapshot_id))

    @operation("putSnapshot", query=serializers.ProjectQuery, request_media=STREAM, data=serializers.SnapshotMissing)
    def put(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """The manifest whose SHA-256 the id is; the answer says which contents the project has not sent yet."""
        manifest = bodies.open_body(request).read()
        return uploads.receive_manifest(request.user, query.get("project"), snapshot_id, manifest)


class SnapshotBlobsView(APIView):
    @operation(
        "putSnapshotBlobs", query=serializers.ProjectQuery, request_media=STREAM, data=serializers.SnapshotStored
    )
    def put(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """Contents, as many as fit into a request: of each a line `<sha256> <size>` and its bytes."""
        return uploads.receive_blobs(request.user, query.get("project"), snapshot_id, bodies.open_body(request))


class SnapshotFinishView(APIView):
    @operation("finishSnapshot", body=serializers.SnapshotFinishRequest, data=serializers.SnapshotItem)
    def post(self, request: Request, snapshot_id: str, body: Body) -> Data:
        """All of it has been sent. Asking again changes nothing."""
        return selectors.serialize_snapshot(
            uploads.finish_upload(request.user, digest=snapshot_id, **{"project_id": None, **body})
        )


class SnapshotTreeView(APIView):
    @operation("listSnapshotTree", query=serializers.PathQuery, data=serializers.SnapshotTree)
    def get(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """What lies in one of its folders."""
        return {"items": selectors.list_folder(selectors.get_snapshot(request.user, snapshot_id).digest, query["path"])}


class SnapshotFileView(APIView):
    @operation("getSnapshotFile", query=serializers.FileQuery, data=serializers.SnapshotFile)
    def get(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """One file, as text where it is text."""
        return selectors.serialize_file(selectors.get_snapshot(request.user, snapshot_id).digest, query["path"])


class SnapshotPatchView(APIView):
    @operation("getSnapshotPatch", data=serializers.SnapshotPatch)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """How it differed from its commit when it was sent."""
        return {"patch": selectors.get_snapshot(request.user, snapshot_id).patch}


class SnapshotDiffView(APIView):
    @operation("diffSnapshots", query=serializers.DiffQuery, data=serializers.SnapshotDiff)
    def get(self, request: Request, snapshot_id: str, query: Query) -> Data:
        """What changed from another snapshot to this one."""
        after, before = (selectors.get_snapshot(request.user, key).digest for key in (snapshot_id, query["before"]))
        return selectors.compare_snapshots(before, after)


class SnapshotManifestView(APIView):
    @operation("getSnapshotManifest", media=STREAM)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """The bytes whose SHA-256 is the snapshot's id: path, mode, size and SHA-256 of each file, as JSON."""
        manifest = store.read_manifest(selectors.get_snapshot(request.user, snapshot_id).digest)
        return HttpResponse(manifest, content_type=STREAM)


class SnapshotArchiveView(APIView):
    @operation("getSnapshotArchive", media=STREAM)
    def get(self, request: Request, snapshot_id: str) -> Data:
        """All of it as a tar archive."""
        row = selectors.get_snapshot(request.user, snapshot_id)
        try:
            archive = store.ensure_archive(row.digest) / ARCHIVE_NAME
        except (store.ContentMissingError, OSError) as error:
            raise ApiError(503, "CODE_LOST", why=str(error)) from error
        name = f"{row.digest[:12]}.tar"
        return FileResponse(archive.open("rb"), as_attachment=True, filename=name, content_type=STREAM)


class FetchesView(APIView):
    @operation("fetchCode", body=serializers.FetchRequest, data=serializers.FetchItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Has a revision of a Git repository fetched into a snapshot."""
        asked = {name: value for name, value in body["git"].items() if value}
        project = uploads.get_upload_project(request.user, body.get("project_id"))
        if wrong := git.check_request(asked["url"], asked["revision"], "git"):
            raise ProblemsError(wrong)
        return selectors.serialize_fetch(fetch.create_fetch(request.user, project, {"git": asked}))


class FetchView(APIView):
    @operation("getCodeFetch", data=serializers.FetchItem)
    def get(self, request: Request, fetch_id: str) -> Data:
        """How far it is."""
        rows = Fetch.objects.select_related("snapshot")
        return selectors.serialize_fetch(access.get_object(rows, cast(User, request.user), fetch_id))
