"""Storage quota of a project: its files, uploads in progress, and outputs of its tasks."""

from dataclasses import dataclass

from django.db.models import Sum

from apps.accounts.models import Project
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.files.models import File, Outputs, Upload, UploadState
from fermi.schema.humanize import format_bytes


@dataclass(frozen=True, slots=True)
class FileUsage:
    """Used bytes. `most` None: no limit."""

    files: int
    arriving: int
    outputs: int
    most: int | None

    @property
    def all(self) -> int:
        return self.files + self.arriving + self.outputs


def read_usage(project_id: str) -> FileUsage:
    """Return the storage that the project uses."""
    kept = File.objects.filter(project=project_id, folder=False)
    arriving = Upload.objects.filter(project=project_id, state__in=[UploadState.RECEIVING, UploadState.CHECKING])
    written = Outputs.objects.filter(project=project_id, stored=False)
    sums = [
        rows.aggregate(sum=Sum("size"))["sum"] or 0
        for rows in (kept.filter(task=""), kept.exclude(task=""), arriving, written)
    ]
    most = Project.objects.filter(pk=project_id).values_list("limits__max_file_bytes", flat=True).first()
    return FileUsage(files=sums[0], arriving=sums[2], outputs=sums[1] + sums[3], most=most)


def check_space(project_id: str, new_bytes: int, replaced_bytes: int) -> None:
    """Raise ApiError 409 unless there is room for `new_bytes` in place of `replaced_bytes`. Call it in a transaction:
    requests at the same time wait."""
    Project.objects.select_for_update().filter(pk=project_id).first()
    check_entry_count(project_id)
    found = read_usage(project_id)
    if found.most is not None and found.all - replaced_bytes + new_bytes > found.most:
        raise ApiError(
            409,
            "FILES_FULL",
            "sizeBytes",
            used=format_bytes(found.all),
            limit=format_bytes(found.most),
            needed=format_bytes(new_bytes),
        )


def check_entry_count(project_id: str) -> None:
    """Raise ApiError 409 unless the project may have another file or folder."""
    check_row_limit("files", File.objects.filter(project=project_id, task=""))
