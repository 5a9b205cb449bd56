"""Saved templates and schedules."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import (
    PatchedSavedTemplateChangeRequest,
    PatchedScheduleChangeRequest,
    SavedTemplateCreateRequest,
    SavedTemplateItem,
    ScheduleCreateRequest,
    ScheduleItem,
    ScheduleRunItem,
    TemplatePreview,
    TemplateTask,
)


class SavedTemplates:
    """Requests with parameters, of the caller's projects and of the platform."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, project: str | None = None) -> Listing[SavedTemplateItem]:
        return Listing(self._transport, "/saved-templates", {"project": project})

    def get(self, template_id: str) -> SavedTemplateItem:
        return self._transport.call("GET", _path("saved-templates", template_id))

    def create(self, request: SavedTemplateCreateRequest) -> SavedTemplateItem:
        """Save a template from a request, or with `taskId` from the request of a task."""
        return self._transport.call("POST", "/saved-templates", json=request)

    def change(self, template_id: str, changes: PatchedSavedTemplateChangeRequest) -> SavedTemplateItem:
        return self._transport.call("PATCH", _path("saved-templates", template_id), json=changes)

    def delete(self, template_id: str) -> None:
        self._transport.call("DELETE", _path("saved-templates", template_id))

    def run(
        self,
        template_id: str,
        values: Mapping[str, Any] | None = None,
        *,
        overrides: Mapping[str, Any] | None = None,
        project: str | None = None,
    ) -> TemplateTask:
        """Create a task with these values of the parameters; the others get their defaults."""
        path = _path("saved-templates", template_id, "/tasks")
        return self._transport.call("POST", path, json=_make_body(values, overrides, project))

    def preview(
        self,
        template_id: str,
        values: Mapping[str, Any] | None = None,
        *,
        overrides: Mapping[str, Any] | None = None,
        project: str | None = None,
    ) -> TemplatePreview:
        """Return what `run` would create, and its problems."""
        path = _path("saved-templates", template_id, "/preview")
        return self._transport.call("POST", path, json=_make_body(values, overrides, project), repeatable=True)


class Schedules:
    """Tasks that are created at the moments of a cron expression."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, project: str | None = None) -> Listing[ScheduleItem]:
        return Listing(self._transport, "/schedules", {"project": project})

    def get(self, schedule_id: str) -> ScheduleItem:
        return self._transport.call("GET", _path("schedules", schedule_id))

    def create(self, request: ScheduleCreateRequest) -> ScheduleItem:
        return self._transport.call("POST", "/schedules", json=request)

    def change(self, schedule_id: str, changes: PatchedScheduleChangeRequest) -> ScheduleItem:
        return self._transport.call("PATCH", _path("schedules", schedule_id), json=changes)

    def run(self, schedule_id: str) -> ScheduleRunItem:
        """Have a task be created now, as at any moment of the schedule."""
        return self._transport.call("POST", _path("schedules", schedule_id, "/runs"))

    def delete(self, schedule_id: str) -> None:
        self._transport.call("DELETE", _path("schedules", schedule_id))

    def runs(self, schedule_id: str) -> Listing[ScheduleRunItem]:
        """Return the newest moments of a schedule, and what became of each."""
        return Listing(self._transport, _path("schedules", schedule_id, "/runs"), {})

    def moments(self, cron: str, zone: str = "UTC") -> Sequence[str]:
        """Return the next moments of a cron expression."""
        moments: Sequence[str] = self._transport.call("GET", "/schedules/moments", params={"cron": cron, "zone": zone})[
            "moments"
        ]
        return moments


def _path(section: str, key: str, rest: str = "") -> str:
    return f"/{section}/{quote(key, safe='')}{rest}"


def _make_body(
    values: Mapping[str, Any] | None, overrides: Mapping[str, Any] | None, project: str | None
) -> dict[str, Any]:
    body: dict[str, Any] = {"values": dict(values or {})}
    if overrides:
        body["overrides"] = dict(overrides)
    return {**body, **({"projectId": project} if project else {})}
