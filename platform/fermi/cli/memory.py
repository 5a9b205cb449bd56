"""Memory of environments and the processes that hold it, as tables."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.texts import _
from fermi.cli.times import format_age


def render_memory_holders(reports: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield tables of the processes of each environment, and of the free memory of its GPUs."""
    rows: list[list[output.Cell]] = [
        [one["environment"], each["name"], each["kind"], each["id"], each["owner"],
         _format_age(each["since"]), _format_gib(each["gpuBytes"]), _format_gib(each["rssBytes"])]
        for one in reports
        for each in one["processes"]
    ]  # fmt: skip
    if rows:
        headers = [_("ENVIRONMENT"), _("PROCESS"), _("KIND"), "ID", _("OWNER"), _("HELD_SINCE"),
                   f"{_('GPU_MEMORY')} GiB", f"{_('MEMORY')} GiB"]  # fmt: skip
        yield output.make_table(headers, rows, title=_("MEMORY_IN_USE"))
    gpus: list[list[output.Cell]] = [
        [
            one["environment"],
            gpu["index"],
            gpu["name"] or None,
            _format_gib(gpu["freeBytes"]),
            _format_gib(gpu["totalBytes"]),
        ]
        for one in reports
        for gpu in one.get("gpus", ())  # an older platform says nothing
    ]
    if gpus:
        yield output.make_table([_("ENVIRONMENT"), "GPU", "", _("FREE_GIB"), _("TOTAL_GIB")], gpus)


def _format_gib(size: int) -> str | None:
    return f"{size / 2**30:.3g}" if size else None


def _format_age(seconds: float | None) -> str | None:
    return format_age(datetime.fromtimestamp(seconds, UTC).isoformat()) if seconds else None
