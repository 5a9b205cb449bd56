"""Detects a model that is compiled again and again while it trains, from its ranks' progress, look after look. Pure.

RECOMPILES    In at least half of the steps since an earlier look something was compiled, and in `FEW_STEPS` of them. A
              model that is compiled once for each of its shapes, or for an evaluation, does not reach that. Information
              at first, a warning once it was in `MANY_STEPS` steps, or once the compiler has given a function up.
              Where steps cannot be seen (JAX), each of `MIN_LOOKS` looks in a row at which something new was printed
              found new compilations; a warning after twice as many.

It is over once `RESOLVED_STEPS` steps, or as many looks, have passed without a compilation. A function that the
compiler has given up stays so: it runs uncompiled to the end of the attempt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fermi.diagnosis import Evidence, Finding, Level, Where
from fermi.diagnosis.actions import ActionCode, build_action
from fermi.diagnosis.stragglers import STALE_SECONDS, FindingChanges, RankLocation
from fermi.jobs.spec import RankProgress

RECOMPILES = "RECOMPILES"
FEW_STEPS, MANY_STEPS = 5, 12
MIN_LOOKS = 12
RESOLVED_STEPS = 100
MAX_LOOKS = 32
"""Looks that are kept: two minutes and more."""


@dataclass(frozen=True, slots=True)
class _PulseRecord:
    step: int = 2  # the first steps are compiled rightly
    recompiled: int = 0
    compiles: int = 0
    printed_at: float = 0.0


@dataclass(slots=True)
class RecompileHistory:
    """What is kept of one attempt. `in_a_row`: looks at a rank without steps, each with new compilations;
    `samples_without`: looks without. `reported`: the level that was reported."""

    looks: dict[int, list[_PulseRecord]] = field(default_factory=dict)
    in_a_row: dict[int, int] = field(default_factory=dict)
    samples_without: int = 0
    since: float | None = None
    reported: str = ""


def detect_recompiles(
    history: RecompileHistory, pulses: Mapping[int, RankProgress], places: Mapping[int, RankLocation], now: float
) -> FindingChanges:
    """Return the rank that compiles most, if it is new or has become a warning. The time is in unix seconds. `history`
    is updated."""
    found: list[tuple[int, int, RankProgress, dict[str, Any]]] = []
    for rank, pulse in sorted(pulses.items()):
        if now - pulse.at >= STALE_SECONDS or not pulse.compiles:
            continue
        seen = _count_by_steps(history, pulse) if pulse.step else _count_by_looks(history, pulse)
        if seen:
            weight, params = seen
            found.append((weight, -rank, pulse, params))
    if not found:
        return _resolve(history, pulses)
    history.samples_without = 0
    weight, _, pulse, params = max(found, key=lambda one: one[:2])
    history.since = now if history.since is None else history.since
    many = weight >= (MANY_STEPS if pulse.step else 2 * MIN_LOOKS)
    level = Level.WARN if many or "gaveUp" in params else Level.INFO
    if history.reported in (level, Level.WARN):
        return FindingChanges()
    history.reported = level
    return FindingChanges([_build_finding(pulse, places, level, history.since, params, len(found))])


def _count_by_steps(history: RecompileHistory, pulse: RankProgress) -> tuple[int, dict[str, Any]] | None:
    """Return how many steps compiled something, and the finding's params; None: too few."""
    assert pulse.step is not None
    recompiled, last = pulse.recompiled or 0, pulse.recompiled_at or 0
    looks = history.looks.setdefault(pulse.rank, [_PulseRecord()])
    gave_up = {"gaveUp": pulse.compiler["gave_up"]} if pulse.compiler and pulse.compiler.get("gave_up") else {}
    found = None
    for look in looks:
        new, steps = recompiled - look.recompiled, last - look.step
        if new >= FEW_STEPS and 2 * new >= steps and pulse.step - last < RESOLVED_STEPS:
            found = new, {"count": new, "steps": max(steps, new)}
            break
    if gave_up and found is None:
        found = recompiled, {"count": recompiled, "steps": max(last - 2, recompiled)}
    if looks[-1].step != pulse.step:
        looks.append(_PulseRecord(pulse.step, recompiled))
        del looks[:-MAX_LOOKS]
    return (found[0], {**found[1], **gave_up}) if found else None


def _count_by_looks(history: RecompileHistory, pulse: RankProgress) -> tuple[int, dict[str, Any]] | None:
    now = _PulseRecord(0, 0, pulse.compiles or 0, pulse.printed_at or 0.0)
    looks = history.looks.setdefault(pulse.rank, [now])
    before = looks[-1]
    if now.printed_at > before.printed_at:
        row = history.in_a_row.get(pulse.rank, 0)
        if now.compiles > before.compiles:
            history.in_a_row[pulse.rank] = row + 1
            if row == 0:
                looks[:] = [before]
        else:
            history.in_a_row[pulse.rank] = 0
        looks.append(now)
        del looks[1 : -MAX_LOOKS + 1]
    row = history.in_a_row.get(pulse.rank, 0)
    return (row, {"compiles": now.compiles - looks[0].compiles}) if row >= MIN_LOOKS else None


def _resolve(history: RecompileHistory, pulses: Mapping[int, RankProgress]) -> FindingChanges:
    history.samples_without += 1
    stepping = any(pulse.step for pulse in pulses.values())
    if not history.reported or (not stepping and history.samples_without < MIN_LOOKS):
        return FindingChanges()
    history.reported, history.since = "", None
    return FindingChanges(resolved=[RECOMPILES])


def _build_finding(
    pulse: RankProgress,
    places: Mapping[int, RankLocation],
    level: Level,
    since: float,
    params: dict[str, Any],
    ranks: int,
) -> Finding:
    at = places.get(pulse.rank, RankLocation(0, "?"))
    where = Where(pulse.rank, at.node_rank, at.node)
    said = {"rank": pulse.rank, "node": at.node, "nodeRank": at.node_rank, "ranks": ranks, **params}
    seconds = f"{pulse.compiling:.0f}" if pulse.compiling else "0"
    evidence = [Evidence("COMPILED", {"count": pulse.compiles, "seconds": seconds}, where=where)]
    actions = [
        build_action(ActionCode.SEE_LOG, rank=pulse.rank),
        build_action(ActionCode.EDIT_SCRIPT, at=params.get("gaveUp")),
    ]
    return Finding(RECOMPILES, level, said, where=[where], since=since, evidence=evidence, actions=actions)
