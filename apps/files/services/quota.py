"""Storage quota of a project: its files, uploads in progress, and outputs of its tasks."""

from dataclasses import dataclass

from django.db.models import Sum

from apps.accounts.models import Project
from apps.common.errors import ApiError
from apps.common.row_bounds import check_rows
from apps.files.models import File, Outputs, Upload, UploadState
from fermi.schema.humanize import size


@dataclass(frozen=True, slots=True)
class Use:
    """Used bytes. `most` None: no limit."""

    files: int
    arriving: int
    outputs: int
    most: int | None

    @property
    def all(self) -> int:
        return self.files + self.arriving + self.outputs


def use(project_id: str) -> Use:
    """Return the storage that the project uses."""
    kept = File.objects.filter(project=project_id, folder=False)
    arriving = Upload.objects.filter(project=project_id, state__in=[UploadState.RECEIVING, UploadState.CHECKING])
    written = Outputs.objects.filter(project=project_id, stored=False)
    sums = [
        rows.aggregate(sum=Sum("size"))["sum"] or 0
        for rows in (kept.filter(task=""), kept.exclude(task=""), arriving, written)
    ]
    most = Project.objects.filter(pk=project_id).values_list("limits__max_file_bytes", flat=True).first()
    return Use(files=sums[0], arriving=sums[2], outputs=sums[1] + sums[3], most=most)


def refuse_beyond(project_id: str, more: int, instead: int) -> None:
    """Raise ApiError 409 unless there is room for `new_bytes` in place of `replaced_bytes`. Call it in a transaction:
    requests at the same time wait."""
    Project.objects.select_for_update().filter(pk=project_id).first()
    refuse_entries(project_id)
    found = use(project_id)
    if found.most is not None and found.all - instead + more > found.most:
        raise ApiError(409, "FILES_FULL", "sizeBytes", used=size(found.all), limit=size(found.most), needed=size(more))


def refuse_entries(project_id: str) -> None:
    """Raise ApiError 409 unless the project may have another file or folder."""
    check_rows("files", File.objects.filter(project=project_id, task=""))
