"""Progress of a task's ranks, as a table."""

from collections.abc import Collection, Iterator

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.texts import _
from fermi.cli.times import format_duration
from fermi.client.types import RankPulse
from fermi.schema import humanize


def render_rank_table(pulses: Collection[RankPulse]) -> Iterator[RenderableType]:
    """Yield a table of the ranks' progress; nothing where there is none."""
    if not pulses:
        return
    yield output.make_heading(_("PULSE"))
    yield output.make_table(
        [_("RANK"), _("PHASE"), _("STEP"), _("SINCE_STEP"), _("STEP_SECONDS"), _("IN_COLLECTIVES"), _("GPU_MEMORY"),
         _("MEMORY")],
        [
            [pulse["rank"], _translate_phase(pulse["phase"]), pulse["step"], _format_since_step(pulse),
             _format_step_seconds(pulse), _format_waiting_share(pulse), _format_size(pulse["gpuBytes"]),
            _format_size(pulse["rssBytes"])] for pulse in pulses
        ],
    )  # fmt: skip


def _translate_phase(name: str) -> str:
    words = {
        "starting": _("PHASE_STARTING"),
        "compiling": _("PHASE_COMPILING"),
        "running": _("PHASE_RUNNING"),
        "evaluating": _("PHASE_EVALUATING"),
        "saving": _("PHASE_SAVING"),
        "ending": _("PHASE_ENDING"),
    }
    return words.get(name, name)


def _format_since_step(pulse: RankPulse) -> str | None:
    return None if pulse["sinceStep"] is None else format_duration(pulse["sinceStep"])


def _format_step_seconds(pulse: RankPulse) -> str | None:
    return None if pulse["stepSeconds"] is None else f"{pulse['stepSeconds']:.3g} s"


def _format_waiting_share(pulse: RankPulse) -> str | None:
    return None if pulse["waitingShare"] is None else f"{pulse['waitingShare']:.0%}"


def _format_size(number: int | None) -> str | None:
    return None if number is None else humanize.format_bytes(number)
