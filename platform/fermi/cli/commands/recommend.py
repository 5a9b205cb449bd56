"""Command that recommends a framework."""

import re
from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import FrameworkRecommendation

SIZE_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


class ModelSizeType(click.ParamType):
    """Click type of a model's size: `7B`, `350M`, `7000000000`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,30}(?:\.\d{1,30})?)([KMBT]?)", str(value).strip().upper())
        if found is None:
            self.fail(_("NO_SIZE", value=value), param, ctx)
        return round(float(found[1]) * SIZE_UNITS[found[2]])


@command("recommend")
@click.option("--parameters", type=ModelSizeType(), metavar="SIZE", help=_("OPTION_PARAMETERS"))
@click.option("--model", help=_("OPTION_RECOMMEND_MODEL"))
@click.option("--env", "environments", multiple=True, help=_("OPTION_RECOMMEND_ENV"))
@click.option("--master", help=_("OPTION_PREFLIGHT_MASTER"))
def recommend(
    session: Session, parameters: int | None, model: str | None, environments: tuple[str, ...], master: str | None
) -> None:
    names = NameResolver(session.fermi)
    found = session.fermi.recommend(
        names.environments(environments),
        parameters=parameters,
        model=names.model(model) if model or parameters is None else None,
        master=names.environments([master])[0] if master else None,
    )
    output.print_result(found, session.form, lambda: _render_recommendation(found))


def _render_recommendation(recommendation: FrameworkRecommendation) -> Iterator[RenderableType]:
    for item in recommendation["items"]:
        values = {**item["strategy"], **item["options"]}
        yield output.make_heading(f"{item['label']} ({item['framework']})")
        yield output.make_line(" ".join(f"{name}={output.format_cell(value)}" for name, value in values.items()) or "-")
        yield from (output.make_line(f"  {reason['message']}") for reason in item["reasons"])
    if scene := next((one for one in reversed(recommendation.get("scenes", ())) if one["fits"]), None):
        labels = "/".join(one["label"] for one in scene["frameworks"])
        yield output.make_heading(_("SCENE_OF_NODES", name=scene["name"], frameworks=labels, feature=scene["feature"]))
    if recommendation["rejected"]:
        yield output.make_heading(_("NOT_RECOMMENDED"))
        rows: list[list[output.Cell]] = [
            [item["framework"], " ".join(reason["message"] for reason in item["reasons"])]
            for item in recommendation["rejected"]
        ]
        yield output.make_table([_("FRAMEWORK"), _("REASONS")], rows)
