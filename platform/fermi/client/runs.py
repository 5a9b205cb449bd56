"""Runs: what people say of tasks, and saved views of the table of runs."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.run_table import RunTable
from fermi.client.types import (
    PatchedRunViewChangeRequest,
    RunBulkResult,
    RunRecord,
    RunViewItem,
    RunViewRequest,
)

MAX_TASKS = 1000
"""Tasks of one request."""


class Runs(RunTable):
    """The table of runs, tags, notes, archived runs and saved views."""

    def change(
        self,
        task_id: str,
        *,
        tags: Sequence[str] | None = None,
        note: str | None = None,
        archived: bool | None = None,
    ) -> RunRecord:
        """Set all tags of a task, its note (Markdown), or whether lists of runs leave it out; None: as it is. Return
        what applies then."""
        changes: dict[str, Any] = {"tags": None if tags is None else [*tags], "note": note, "archived": archived}
        body = {name: value for name, value in changes.items() if value is not None}
        return self._transport.call("PATCH", f"/runs/{quote(task_id, safe='')}", json=body, repeatable=True)

    def add_tags(self, task_ids: Sequence[str], tags: Sequence[str]) -> RunBulkResult:
        """Add tags to tasks, at most 1,000. Each is done or refused by itself."""
        return self._change_many("addTags", task_ids, tags)

    def remove_tags(self, task_ids: Sequence[str], tags: Sequence[str]) -> RunBulkResult:
        """Remove tags from tasks, at most 1,000. Each is done or refused by itself."""
        return self._change_many("removeTags", task_ids, tags)

    def archive(self, task_ids: Sequence[str], *, undo: bool = False) -> RunBulkResult:
        """Archive tasks, at most 1,000, or take that back. Each is done or refused by itself."""
        return self._change_many("unarchive" if undo else "archive", task_ids)

    def stop(self, task_ids: Sequence[str]) -> RunBulkResult:
        """Request the stop of tasks, at most 1,000. Those that do not fit into the time of a request are refused with
        RUNS_NOT_REACHED."""
        return self._change_many("stop", task_ids)

    def delete(self, task_ids: Sequence[str]) -> RunBulkResult:
        """Delete tasks that have ended, at most 1,000. Those that do not fit into the time of a request are refused
        with RUNS_NOT_REACHED."""
        return self._change_many("delete", task_ids)

    def views(self, project: str | None = None) -> Listing[RunViewItem]:
        """Return the caller's saved views and those of the caller's projects, or of one project alone."""
        return Listing(self._transport, "/run-views", {"project": project})

    def create_view(self, request: RunViewRequest) -> RunViewItem:
        """Save a view of the table of runs; with `projectId` for all members of the project."""
        return self._transport.call("POST", "/run-views", json=request)

    def change_view(self, view_id: str, changes: PatchedRunViewChangeRequest) -> RunViewItem:
        return self._transport.call("PATCH", f"/run-views/{quote(view_id, safe='')}", json=changes)

    def delete_view(self, view_id: str) -> None:
        self._transport.call("DELETE", f"/run-views/{quote(view_id, safe='')}")

    def _change_many(self, action: str, task_ids: Sequence[str], tags: Sequence[str] = ()) -> RunBulkResult:
        body = {"taskIds": [*task_ids], "action": action, **({"tags": [*tags]} if tags else {})}
        return self._transport.call("POST", "/runs/bulk", json=body, repeatable=True)
