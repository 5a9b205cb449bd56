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
from fermi.diagnosis.actions import ACTIONS, ActionCode, build_action
from fermi.diagnosis.facts import JobFacts
from fermi.diagnosis.rules import Match, Rule
from fermi.diagnosis.tracebacks import Crash
from fermi.jobs.spec import RankStatus
from fermi.runner import first_failure
from fermi.runner.leftover_ranks import LEFTOVER
from fermi.schema import humanize

UNCAUGHT = "UNCAUGHT_EXCEPTION"
PORT_IN_USE = "PORT_IN_USE"
LEFT_RUNNING = "PROCESSES_LEFT_RUNNING"
LIMIT_REACHED, HOST_FULL = "MEMORY_LIMIT_REACHED", "HOST_OUT_OF_MEMORY"
MAX_LOGS = 4
"""Ranks whose logs are read."""
MAX_LINES = 12
MESSAGE_LINES = 3
"""Lines of an exception's message after its first one: NCCL says what was wrong in its fourth."""
CONTEXT_LINES = 400
"""Lines before and after a crash in which rules look for theirs."""
_OUTSIDE_SIGNALS = (-signal.SIGKILL, -signal.SIGTERM)
"""A rank that ended by these prints nothing of it: its log shows something else."""

ReadTail = Callable[[int], bytes]
"""Returns the tail of a rank's log, at most `tracebacks.MAX_BYTES` bytes."""


@dataclass(frozen=True, slots=True)
class RankFailure:
    """What is known of one rank's end. `about` fills the text of `why`, a rule's code. `kernel`: the line of the
    kernel's log about it."""

    rank_status: RankStatus
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
    def is_known(self) -> bool:
        return bool(self.exception or self.why)

    def params(self) -> dict[str, Any]:
        """Return what the cause of the attempt's end says beside what the ranks' ends alone show."""
        said = {"exception": self.exception, "at": self.at, "why": self.why, "about": self.about}
        return {name: value for name, value in said.items() if value}

    def finding(self) -> Finding | None:
        """Return the finding, or None where nothing is known."""
        if not self.is_known:
            return None
        where = Where(self.rank_status.rank, self.rank_status.node_rank, self.node)
        told = {"rank": self.rank_status.rank, "node": self.node, **({"at": self.at} if self.at else {})}
        params = {**told, "exception": self.exception} if not self.why else {**told, **(self.about or {})}
        evidence = [Evidence("KERNEL_SAID", told, [self.kernel], where)] if self.kernel else []
        evidence += [Evidence("RANK_PRINTED", told, list(self.lines), where)] if self.lines else []
        error = (self.rank_status.error or {}).get("at")
        return Finding(
            self.why or UNCAUGHT,
            self.rule.level if self.rule else Level.FAIL,
            params,
            [where],
            since=error or self.rank_status.ended_at,
            evidence=evidence,
            actions=_list_actions(self, params),
        )


def explain_failure(
    ranks: Iterable[RankStatus],
    blamed: int,
    names: Sequence[str],
    read_tail: ReadTail,
    project_rules: Sequence[Rule] = (),
    addresses: Mapping[str, str] | None = None,
    facts: JobFacts | None = None,
) -> RankFailure | None:
    """Return the rank that explains the end, or None where nothing more is known. `names`: of nodes by node rank;
    `addresses`: the nodes' names by the addresses that peers use; `facts`: what else is known of the job."""
    table = (*project_rules, *rules.load_rules())
    first: RankFailure | None = None
    for seen in _select_ranks(list(ranks), blamed):
        node = names[seen.node_rank] if seen.node_rank < len(names) else ""
        told = explain_rank(seen, node, read_tail(seen.rank), table, addresses or {}, facts or JobFacts())
        if first is None:
            first = told
        if told.is_known and not told.follows:
            return told
        if _was_killed(first.rank_status):
            break  # that explains what its peers say
    return first if first and first.is_known else None


def explain_rank(
    status: RankStatus, node: str, printed: bytes, table: Sequence[Rule], addresses: Mapping[str, str], facts: JobFacts
) -> RankFailure:
    """Return what is known of one rank's end, from its log and its runner's report."""
    lines = tracebacks.split_lines(printed)
    crash = None if status.exit_code in _OUTSIDE_SIGNALS else tracebacks.find_crash(lines)
    said = _describe_exception(status, crash)
    text = f"{said.get('exception', '')}\n{(status.error or {}).get('message', '')}"
    if crash and crash.lacks_variable:
        text += f"\nenvironment variable {crash.message} is not set"
    span = (crash.begin, crash.end + MESSAGE_LINES) if crash else (len(lines) - MAX_LINES, len(lines))
    begin = max(0, min(tracebacks.find_steps_end(lines), span[0]) - 40, span[0] - CONTEXT_LINES)
    end = span[1] + CONTEXT_LINES
    if crash and crash.launched:
        begin, end = span  # what a launcher says around its child's exception is what came of that
    near = [*lines[:end], text]
    found = rules.match_rules(table, near, begin, span) if status.exit_code not in _OUTSIDE_SIGNALS else None
    follows = first_failure.is_consequence(text) or bool(found and found.rule.follows)
    if memory := _find_memory_kill(status):
        return RankFailure(status, node, said.get("exception", ""), said.get("at", ""), *memory)
    found = _add_port_holder(status, found)
    shown = _select_lines(near[:-1], crash, found)
    line, heard = _find_gpu_error(status)
    if heard and (heard.rule.elsewhere or found is None):
        found, follows = heard, False
    kernel = heard is not None and found is not None and found.rule.code == heard.rule.code
    if found and not found.rule.own:
        known = facts.about(status, node, found.params, [frame.file for frame in crash.frames] if crash else ())
        found = replace(found, rule=rules.select_rule(found.rule, known), params={**known, **found.params})
    if found is None:
        return RankFailure(status, node, said.get("exception", ""), said.get("at", ""), follows=follows, lines=shown)
    about: dict[str, Any] = {"rank": status.rank, "node": node, **found.params}
    if kernel and status.kill:
        about.update({name: status.kill[name] for name in ("gpu", "xid") if status.kill.get(name) is not None})
    if peer := addresses.get(str(found.params.get("peer", ""))):
        about["peerNode"] = peer
    code = found.rule.code
    if found.rule.own:
        filled = {**about, "at": said.get("at", "")}
        about = {"rule": code, "message": _fill_text(found.rule.message, filled), "hint": _fill_text(found.rule.hint,
        filled),
                 **({"elsewhere": True} if found.rule.elsewhere else {})}  # fmt: skip
        code = rules.PROJECT_RULE
    return RankFailure(
        status, node, said.get("exception", ""), said.get("at", ""), code, about, follows, shown, found.rule,
        line if kernel else "",
    )  # fmt: skip


def find_left_running(ranks: Iterable[RankStatus], names: Sequence[str]) -> list[Finding]:
    """Return the finding of an attempt that succeeded while programs that its ranks had started still ran."""
    found = [(seen, seen.kill) for seen in ranks if seen.kill and seen.kill.get("by") == LEFTOVER]
    if not found:
        return []
    where = [
        Where(seen.rank, seen.node_rank, names[seen.node_rank]) for seen, _ in found if seen.node_rank < len(names)
    ]
    (first, left), processes = found[0], sum(left.get("processes") or 1 for _, left in found)
    params = {"rank": first.rank, "processes": processes, "command": left.get("line") or ""}
    return [Finding(LEFT_RUNNING, Level.INFO, params, where, actions=[build_action(ActionCode.EDIT_SCRIPT)])]


def is_external(params: Mapping[str, Any]) -> bool:
    """Return whether the end came from outside of the script: from a machine, a network, a disk."""
    why = params.get("why")
    if why == rules.PROJECT_RULE:
        return bool((params.get("about") or {}).get("elsewhere"))
    if why == LIMIT_REACHED:
        return False
    known = next((rule for rule in rules.load_rules() if rule.code == why), None)
    return (known.elsewhere if known else False) or first_failure.is_consequence(str(params.get("exception", "")))


def _select_ranks(ranks: Sequence[RankStatus], blamed: int) -> Iterator[RankStatus]:
    """Yield the blamed rank, and some that failed with it."""

    def moment(status: RankStatus) -> float:
        return (status.error or {}).get("at") or status.ended_at or float("inf")

    failed = [one for one in ranks if one.rank != blamed and not one.asked and (one.error or one.exit_code)]
    yield from [one for one in ranks if one.rank == blamed]
    yield from sorted(failed, key=moment)[: MAX_LOGS - 1]


def _was_killed(rank: RankStatus) -> bool:
    return rank.exit_code is not None and first_failure.was_killed(rank.exit_code)


def _describe_exception(rank: RankStatus, crash: Crash | None) -> dict[str, str]:
    """Return the exception as the rank's probe reported it; where the log has more of the same, its root."""
    told = {name: str(value) for name, value in first_failure.describe_exception(rank.error).items()}
    if crash and (not told or str((rank.error or {}).get("type", "")).rpartition(".")[2] in crash.chain):
        printed = {"exception": first_failure.summarize_message(crash.exception)}
        return {**printed, **({"at": crash.at} if crash.at else {"at": told["at"]} if "at" in told else {})}
    return told


def _find_memory_kill(rank: RankStatus) -> tuple[str, dict[str, Any]] | None:
    if not rank.kill or rank.kill.get("by") != "memory":
        return None
    sizes = {name: humanize.format_bytes(rank.kill[name]) for name in ("limit", "used") if rank.kill.get(name)}
    return LIMIT_REACHED if rank.kill.get("scope") == "cgroup" else HOST_FULL, {"rank": rank.rank, **sizes}


def _add_port_holder(rank: RankStatus, match: Match | None) -> Match | None:
    """Return the match with the process that listens on the port, under the code of what that means: processes that the
    ranks started and that all meet at one port, a port that the script itself chooses, or any other."""
    kill = rank.kill or {}
    if kill.get("by") != "port" or match is None or match.rule.code != PORT_IN_USE:
        return match
    code = "RANKS_STARTED_RANKS" if kill.get("started") else "PORT_FIXED_IN_USE" if kill.get("fixed") else PORT_IN_USE
    rule = next(rule for rule in rules.load_rules() if rule.code == code)
    names = {"port": "port", "holder": "holder", "task": "task", "rank": "holderRank"}
    about = {said: str(kill[name]) for name, said in names.items() if kill.get(name) is not None}
    about |= {} if kill.get("fixed") else {"meets": "MASTER_PORT"}
    return replace(match, rule=rule, params={**match.params, **about})


def _find_gpu_error(rank: RankStatus) -> tuple[str, Match | None]:
    """Return the kernel's line about the rank's GPU and its meaning: a hardware fault explains the end; a fault of the
    script's own does where the rank printed nothing known, and is evidence beside a rule that says the same."""
    line = str(rank.kill.get("line") or "") if rank.kill and rank.kill.get("by") == "gpu" else ""
    return line, rules.match_rules(rules.load_rules(), [line]) if line else None


def _select_lines(lines: Sequence[str], crash: Crash | None, match: Match | None) -> list[str]:
    """Return the lines of the crash, and the line that says most where it is elsewhere."""
    shown = list(crash.lines) if crash else []
    if match and match.at < len(lines) and not (crash and crash.begin <= match.at < crash.end):
        shown = [lines[match.at], *shown]
    if not shown:
        shown = [line for line in lines[-MAX_LINES * 4 :] if line.strip()][-MAX_LINES:]
    return shown


def _fill_text(text: str, params: Mapping[str, Any]) -> str:
    return text.format_map(_DashForMissing(params))


class _DashForMissing(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "–"


def _list_actions(failure: RankFailure, params: Mapping[str, Any]) -> list[Action]:
    found: list[Action] = []
    here = {"node": failure.node, "nodeRank": failure.rank_status.node_rank, "at": failure.at, **params}
    for one in failure.rule.actions if failure.rule else ():
        code = ActionCode(one["do"])
        filled = {name: _fill_text(value, here) for name, value in one.items() if name != "do"}
        if "–" in filled.values():
            continue
        takes = (*ACTIONS[code].needs, *ACTIONS[code].may)
        given = {**{name: here[name] for name in takes if here.get(name) not in (None, "")}, **filled}
        if given.keys() >= set(ACTIONS[code].needs):
            found.append(build_action(code, **given))
    if (
        failure.at
        and not any(one.code == ActionCode.EDIT_SCRIPT for one in found)
        and not (failure.rule and failure.rule.elsewhere)
    ):
        found.append(build_action(ActionCode.EDIT_SCRIPT, at=failure.at))
    return [*found, build_action(ActionCode.SEE_LOG, rank=failure.rank_status.rank)]
