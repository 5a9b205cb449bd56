"""Finds why ranks failed, from what their probes, their logs and the kernel report: the rank that explains the end, its
exception, what is known of it, and a finding. Pure.

The blamed rank is examined first. Where it only reports a peer that is gone, or nothing, those that failed with it are
examined in the order in which they did: the first one that reports something else explains the end.
"""

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fermi.diagnosis import Action, Evidence, Finding, Level, Where, rules, tracebacks
from fermi.diagnosis.actions import ACTIONS, Do, take
from fermi.diagnosis.facts import Facts
from fermi.diagnosis.rules import Match, Rule
from fermi.diagnosis.tracebacks import Crash
from fermi.jobs.spec import RankSeen
from fermi.runner import first_failure
from fermi.runner.leftover_ranks import LEFT
from fermi.schema import humanize

UNCAUGHT = "UNCAUGHT_EXCEPTION"
PORT_IN_USE = "PORT_IN_USE"
LEFT_RUNNING = "PROCESSES_LEFT_RUNNING"
LIMIT_REACHED, HOST_FULL = "MEMORY_LIMIT_REACHED", "HOST_OUT_OF_MEMORY"
MOST_ASKED = 4
"""Ranks whose logs are read."""
MOST_LINES = 12
MORE = 3
"""Lines of an exception's message after its first one: NCCL says what was wrong in its fourth."""
AROUND = 400
"""Lines before and after a crash in which rules look for theirs."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""A rank that ended by these prints nothing of it: its log shows something else."""

Tail = Callable[[int], bytes]
"""Returns the tail of a rank's log, at most `tracebacks.MAX_BYTES` bytes."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one rank's end. `about` fills the text of `why`, a rule's code. `kernel`: the line of the
    kernel's log about it."""

    seen: RankSeen
    node: str
    exception: str = ""
    at: str = ""
    why: str = ""
    about: Mapping[str, Any] | None = None
    follows: bool = False
    lines: Sequence[str] = ()
    rule: Rule | None = None
    kernel: str = ""

    @property
    def known(self) -> bool:
        return bool(self.exception or self.why)

    def params(self) -> dict[str, Any]:
        """Return what the cause of the attempt's end says beside what the ranks' ends alone show."""
        said = {"exception": self.exception, "at": self.at, "why": self.why, "about": self.about}
        return {name: value for name, value in said.items() if value}

    def finding(self) -> Finding | None:
        """Return the finding, or None where nothing is known."""
        if not self.known:
            return None
        where = Where(self.seen.rank, self.seen.node_rank, self.node)
        told = {"rank": self.seen.rank, "node": self.node, **({"at": self.at} if self.at else {})}
        params = {**told, "exception": self.exception} if not self.why else {**told, **(self.about or {})}
        evidence = [Evidence("KERNEL_SAID", told, [self.kernel], where)] if self.kernel else []
        evidence += [Evidence("RANK_PRINTED", told, list(self.lines), where)] if self.lines else []
        error = (self.seen.error or {}).get("at")
        return Finding(
            self.why or UNCAUGHT,
            self.rule.level if self.rule else Level.FAIL,
            params,
            [where],
            since=error or self.seen.ended_at,
            evidence=evidence,
            actions=_actions(self, params),
        )


def explain(
    ranks: Iterable[RankSeen],
    blamed: int,
    names: Sequence[str],
    tail: Tail,
    own: Sequence[Rule] = (),
    addresses: Mapping[str, str] | None = None,
    facts: Facts | None = None,
) -> Told | None:
    """Return the rank that explains the end, or None where nothing more is known. `names`: of nodes by node rank;
    `addresses`: the nodes' names by the addresses that peers use; `facts`: what else is known of the job."""
    table = (*own, *rules.ours())
    first: Told | None = None
    for seen in _asked(list(ranks), blamed):
        node = names[seen.node_rank] if seen.node_rank < len(names) else ""
        told = of_rank(seen, node, tail(seen.rank), table, addresses or {}, facts or Facts())
        if first is None:
            first = told
        if told.known and not told.follows:
            return told
        if _killed(first.seen):
            break  # that explains what its peers say
    return first if first and first.known else None


def of_rank(
    seen: RankSeen, node: str, printed: bytes, table: Sequence[Rule], addresses: Mapping[str, str], facts: Facts
) -> Told:
    """Return what is known of one rank's end, from its log and its runner's report."""
    lines = tracebacks.lines_of(printed)
    crash = None if seen.exit_code in _FROM_OUTSIDE else tracebacks.explaining(lines)
    said = _exception(seen, crash)
    text = f"{said.get('exception', '')}\n{(seen.error or {}).get('message', '')}"
    if crash and crash.lacks_variable:
        text += f"\nenvironment variable {crash.message} is not set"
    span = (crash.begin, crash.end + MORE) if crash else (len(lines) - MOST_LINES, len(lines))
    begin = max(0, min(tracebacks.steps_end(lines), span[0]) - 40, span[0] - AROUND)
    end = span[1] + AROUND
    if crash and crash.launched:
        begin, end = span  # what a launcher says around its child's exception is what came of that
    near = [*lines[:end], text]
    found = rules.look(table, near, begin, span) if seen.exit_code not in _FROM_OUTSIDE else None
    follows = first_failure.follows(text) or bool(found and found.rule.follows)
    if memory := _of_memory(seen):
        return Told(seen, node, said.get("exception", ""), said.get("at", ""), *memory)
    found = _of_port(seen, found)
    shown = _shown(near[:-1], crash, found)
    line, heard = _of_gpu(seen)
    if heard and (heard.rule.elsewhere or found is None):
        found, follows = heard, False
    kernel = heard is not None and found is not None and found.rule.code == heard.rule.code
    if found and not found.rule.own:
        known = facts.about(seen, node, found.params, [frame.file for frame in crash.frames] if crash else ())
        found = replace(found, rule=rules.told_as(found.rule, known), params={**known, **found.params})
    if found is None:
        return Told(seen, node, said.get("exception", ""), said.get("at", ""), follows=follows, lines=shown)
    about: dict[str, Any] = {"rank": seen.rank, "node": node, **found.params}
    if kernel and seen.kill:
        about.update({name: seen.kill[name] for name in ("gpu", "xid") if seen.kill.get(name) is not None})
    if peer := addresses.get(str(found.params.get("peer", ""))):
        about["peerNode"] = peer
    code = found.rule.code
    if found.rule.own:
        filled = {**about, "at": said.get("at", "")}
        about = {"rule": code, "message": _fill(found.rule.message, filled), "hint": _fill(found.rule.hint, filled),
                 **({"elsewhere": True} if found.rule.elsewhere else {})}  # fmt: skip
        code = rules.OWN
    return Told(
        seen, node, said.get("exception", ""), said.get("at", ""), code, about, follows, shown, found.rule,
        line if kernel else "",
    )  # fmt: skip


def left_running(ranks: Iterable[RankSeen], names: Sequence[str]) -> list[Finding]:
    """Return the finding of an attempt that succeeded while programs that its ranks had started still ran."""
    found = [(seen, seen.kill) for seen in ranks if seen.kill and seen.kill.get("by") == LEFT]
    if not found:
        return []
    where = [
        Where(seen.rank, seen.node_rank, names[seen.node_rank]) for seen, _ in found if seen.node_rank < len(names)
    ]
    (first, left), processes = found[0], sum(left.get("processes") or 1 for _, left in found)
    params = {"rank": first.rank, "processes": processes, "command": left.get("line") or ""}
    return [Finding(LEFT_RUNNING, Level.INFO, params, where, actions=[take(Do.EDIT_SCRIPT)])]


def elsewhere(params: Mapping[str, Any]) -> bool:
    """Return whether the end came from outside of the script: from a machine, a network, a disk."""
    why = params.get("why")
    if why == rules.OWN:
        return bool((params.get("about") or {}).get("elsewhere"))
    if why == LIMIT_REACHED:
        return False
    known = next((rule for rule in rules.ours() if rule.code == why), None)
    return (known.elsewhere if known else False) or first_failure.follows(str(params.get("exception", "")))


def _asked(ranks: Sequence[RankSeen], blamed: int) -> Iterator[RankSeen]:
    """Yield the blamed rank, and some that failed with it."""

    def moment(seen: RankSeen) -> float:
        return (seen.error or {}).get("at") or seen.ended_at or float("inf")

    failed = [one for one in ranks if one.rank != blamed and not one.asked and (one.error or one.exit_code)]
    yield from [one for one in ranks if one.rank == blamed]
    yield from sorted(failed, key=moment)[: MOST_ASKED - 1]


def _killed(seen: RankSeen) -> bool:
    return seen.exit_code is not None and first_failure.was_killed(seen.exit_code)


def _exception(seen: RankSeen, crash: Crash | None) -> dict[str, str]:
    """Return the exception as the rank's probe reported it; where the log has more of the same, its root."""
    told = {name: str(value) for name, value in first_failure.erred(seen.error).items()}
    if crash and (not told or str((seen.error or {}).get("type", "")).rpartition(".")[2] in crash.chain):
        printed = {"exception": first_failure.headline(crash.exception)}
        return {**printed, **({"at": crash.at} if crash.at else {"at": told["at"]} if "at" in told else {})}
    return told


def _of_memory(seen: RankSeen) -> tuple[str, dict[str, Any]] | None:
    if not seen.kill or seen.kill.get("by") != "memory":
        return None
    sizes = {name: humanize.size(seen.kill[name]) for name in ("limit", "used") if seen.kill.get(name)}
    return LIMIT_REACHED if seen.kill.get("scope") == "cgroup" else HOST_FULL, {"rank": seen.rank, **sizes}


def _of_port(seen: RankSeen, found: Match | None) -> Match | None:
    """Return the match with the process that listens on the port, under the code of what that means: processes that the
    ranks started and that all meet at one port, a port that the script itself chooses, or any other."""
    kill = seen.kill or {}
    if kill.get("by") != "port" or found is None or found.rule.code != PORT_IN_USE:
        return found
    code = "RANKS_STARTED_RANKS" if kill.get("started") else "PORT_FIXED_IN_USE" if kill.get("fixed") else PORT_IN_USE
    rule = next(rule for rule in rules.ours() if rule.code == code)
    names = {"port": "port", "holder": "holder", "task": "task", "rank": "holderRank"}
    about = {said: str(kill[name]) for name, said in names.items() if kill.get(name) is not None}
    about |= {} if kill.get("fixed") else {"meets": "MASTER_PORT"}
    return replace(found, rule=rule, params={**found.params, **about})


def _of_gpu(seen: RankSeen) -> tuple[str, Match | None]:
    """Return the kernel's line about the rank's GPU and its meaning: a hardware fault explains the end; a fault of the
    script's own does where the rank printed nothing known, and is evidence beside a rule that says the same."""
    line = str(seen.kill.get("line") or "") if seen.kill and seen.kill.get("by") == "gpu" else ""
    return line, rules.look(rules.ours(), [line]) if line else None


def _shown(lines: Sequence[str], crash: Crash | None, found: Match | None) -> list[str]:
    """Return the lines of the crash, and the line that says most where it is elsewhere."""
    shown = list(crash.lines) if crash else []
    if found and found.at < len(lines) and not (crash and crash.begin <= found.at < crash.end):
        shown = [lines[found.at], *shown]
    if not shown:
        shown = [line for line in lines[-MOST_LINES * 4 :] if line.strip()][-MOST_LINES:]
    return shown


def _fill(text: str, params: Mapping[str, Any]) -> str:
    return text.format_map(_Dashes(params))


class _Dashes(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "–"


def _actions(told: Told, params: Mapping[str, Any]) -> list[Action]:
    found: list[Action] = []
    here = {"node": told.node, "nodeRank": told.seen.node_rank, "at": told.at, **params}
    for one in told.rule.actions if told.rule else ():
        code = Do(one["do"])
        filled = {name: _fill(value, here) for name, value in one.items() if name != "do"}
        if "–" in filled.values():
            continue
        takes = (*ACTIONS[code].needs, *ACTIONS[code].may)
        given = {**{name: here[name] for name in takes if here.get(name) not in (None, "")}, **filled}
        if given.keys() >= set(ACTIONS[code].needs):
            found.append(take(code, **given))
    if told.at and not any(one.code == Do.EDIT_SCRIPT for one in found) and not (told.rule and told.rule.elsewhere):
        found.append(take(Do.EDIT_SCRIPT, at=told.at))
    return [*found, take(Do.SEE_LOG, rank=told.seen.rank)]
