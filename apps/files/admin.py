"""Operators' console: caches of libraries, by project."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from apps.common.admin import ReadOnlyAdmin, label_app, label_model
from apps.common.texts import lazy_admin_text
from apps.files.models import LibraryCache
from apps.files.services import library_caches
from fermi.characters import escape_name
from fermi.schema.humanize import format_bytes

label_app("files", "FILES")
label_model(
    LibraryCache,
    "LIBRARY_CACHES",
    project="PROJECT",
    count="CACHE_UNITS",
    is_complete="CACHE_MEASURED_WHOLE",
    error="ERROR",
    measured_at="CACHE_MEASURED",
    cleaned_at="CACHE_CLEANED",
)


@admin.register(LibraryCache)
class LibraryCacheAdmin(ReadOnlyAdmin):
    list_display = ("project", "shown_size", "shown_limit", "shown_excess", "count", "measured_at", "cleaned_at")
    list_select_related = ("project__limits",)
    search_fields = ("project__name", "project__id")
    ordering = ("-size",)
    fields = (
        "project", "shown_size", "shown_limit", "shown_excess", "count", "is_complete", "error", "measured_at",
        "cleaned_at", "shown_freed", "shown_largest",
    )  # fmt: skip
    actions = ("clean_now",)

    @admin.display(description=lazy_admin_text("CACHE_SIZE"), ordering="size")
    def shown_size(self, row: LibraryCache) -> str:
        return format_bytes(row.size)

    @admin.display(description=lazy_admin_text("CACHE_LIMIT"))
    def shown_limit(self, row: LibraryCache) -> str:
        limit = library_caches.get_limit(row.project)
        return "–" if limit is None else format_bytes(limit)

    @admin.display(description=lazy_admin_text("CACHE_EXCESS"), ordering="excess")
    def shown_excess(self, row: LibraryCache) -> str:
        return format_bytes(row.excess) if row.excess else "–"

    @admin.display(description=lazy_admin_text("CACHE_FREED"))
    def shown_freed(self, row: LibraryCache) -> str:
        return format_bytes(row.freed)

    @admin.display(description=lazy_admin_text("CACHE_LARGEST"))
    def shown_largest(self, row: LibraryCache) -> SafeString:
        lines = ((escape_name(unit["path"]), format_bytes(unit["size"]), unit["usedAt"][:10]) for unit in row.largest)
        return format_html_join("", "<div>{} · {} · {}</div>", lines)

    @admin.action(description=lazy_admin_text("CACHE_CLEAN_NOW"), permissions=["operate"])
    def clean_now(self, request: HttpRequest, rows: QuerySet[LibraryCache]) -> None:
        def clean(user: Any, row: Any) -> None:
            library_caches.request_cleanup(user, row.project, 0)

        self.apply(request, rows.select_related("project"), clean, "CACHE_CLEANUP_REQUESTED")
