"""Commands for task templates: use cases that are ready to be submitted."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command


@command("templates")
def templates(session: Session) -> None:
    items = list(session.fermi.templates())
    output.print_result({"items": items, "total": len(items)}, session.form, lambda: _render_templates(items))


def _render_templates(items: list[Any]) -> Iterator[RenderableType]:
    for item in items:
        yield output.make_heading(f"{item['title']} ({item['id']})")
        yield output.make_line(f"{item['need']}: {item['setting']}")
        yield from (output.make_line(f"  {note}") for note in item["notes"])
        for name, variant in (("", item["full"]), (" --small", item["small"])):
            nodes = variant["request"]["distributedConfig"]["nodeIds"]
            yield output.make_line(f"  fermi submit --template {item['id']}{name}: {', '.join(nodes) or '-'}")
            yield from (output.make_line(f"    {one['message']}") for one in variant["missing"])
