"""Detects whether a gang of ranks hangs, and because of which ranks: from what its nodes' runners report of ranks that
do not advance. Pure.

    a rank is stopped                               RANK_STOPPED: `kill -CONT` lets it continue
    every living rank is stalled                    waiting for a rank that advances, or starts to, is normal
    ├─ data waits on a connection that is dead      NETWORK_CUT, with the two nodes
    ├─ some are in one collective, some in another  COLLECTIVE_MISMATCH, with those that differ from most
    ├─ some wait in a collective, some do not       HANG: the others wait for these (`odd`), where they are
    ├─ all wait in the same collective              HANG, never certain while a GPU computes
    ├─ none waits in a collective                   HANG: all are odd
    └─ all others ended with 0                      RANKS_LEFT_BEHIND

HANG_SUSPECTED is a doubt: an odd rank computes, waits for a timer, a disk, a program of its own or a connection, comes
back from its waits, waits for processes of its own that are at work, or has not started to step. It is reported at once
as information, as a warning once it lasts `WARNING_SECONDS`, and never ends anything.

A HANG is certain, so that it may end the attempt, where two proofs agree: all that the others wait for is still, and
nothing can ever end it (`_Gang.is_deadlock`). Otherwise it is only likely, and reported as a warning, until it has
lasted as long as the project's past requires (`compute_certain_seconds`). Where all wait in one collective and a GPU of
theirs computes, it stays likely: a kernel that waits for its peers and one that the collective is queued behind look
the same from outside.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fermi.diagnosis import Action, Evidence, Finding, Level, Where, collective_groups
from fermi.diagnosis.actions import ActionCode, build_action
from fermi.diagnosis.collective_groups import format_names
from fermi.jobs.spec import RankStatus

HANG, SUSPECTED, MISMATCH, CUT, LEFT, STOPPED = (
    "HANG", "HANG_SUSPECTED", "COLLECTIVE_MISMATCH", "NETWORK_CUT", "RANKS_LEFT_BEHIND", "RANK_STOPPED",
)  # fmt: skip
CODES = (HANG, SUSPECTED, MISMATCH, CUT, LEFT, STOPPED)
ENDING_CODES = (HANG, MISMATCH, CUT)
"""Codes that end an attempt, where its task asks for that."""

MIN_LOOKS = 2
WARNING_SECONDS = 600.0
"""Seconds after which a doubt becomes a warning: as long as evaluations and checkpoints take."""
MIN_CERTAIN_SECONDS, PAST_FACTOR = 600.0, 3.0
"""Seconds for which a likely hang lasts at least before it is certain; and the factor of the longest stall before."""
KEPT_WAITING_SECONDS = 45.0
"""Seconds after which the ranks are named for which others wait, and which do not stall themselves."""
MIN_RETRIES, SILENT_SECONDS, MANY_RETRIES = 2, 4.0, 5
"""A connection is dead after so many retransmissions and so many silent seconds; or after so many retransmissions that
it must have been silent as long, since each waits twice as long as the one before."""
LEFT_BEHIND_SECONDS = 8.0
"""Seconds after the last of the other ranks ended successfully."""
MAX_NAMED, MAX_GROUPS, MAX_STACK_FRAMES = 16, 8, 8
RENDEZVOUS_FUNCTION = "init_process_group"
"""The function in which ranks wait for each other before any collective."""
CHILD_WAIT = "do_wait"
_SLEEPS, _CONNECTIONS = ("nanosleep",), ("wait_woken", "sk_stream_wait", "sk_wait_data")

StallEvidence = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GangLayout:
    """Where an attempt runs. `names`: of its nodes, by node rank; `addresses`: node ranks by address. `patient`: the
    task itself states how long is too long. `patience`: otherwise, seconds after which a likely hang is certain."""

    names: Sequence[str] = ()
    addresses: Mapping[str, int] = field(default_factory=dict)
    patient: bool = False
    patience: float = MIN_CERTAIN_SECONDS

    def name(self, node_rank: int) -> str:
        return self.names[node_rank] if 0 <= node_rank < len(self.names) else str(node_rank)

    def at(self, address: str) -> str:
        """Return the node's name before its address; empty for an unknown address."""
        return f"{self.name(self.addresses[address])} " if address in self.addresses else ""


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """The result. `certain`: what the task asks for in this case may be done. `ranks`: those that are named."""

    finding: Finding
    certain: bool
    ranks: tuple[int, ...] = ()


def compute_certain_seconds(past: Iterable[float]) -> float:
    """Return the seconds after which a likely hang is certain. `past`: how long ranks of this task and its project have
    stalled and continued after, in seconds."""
    return max(MIN_CERTAIN_SECONDS, PAST_FACTOR * max(past, default=0.0))


def detect_hang(ranks: Sequence[RankStatus], layout: GangLayout, now: float) -> HangVerdict | None:
    """Return the hang, or None where the ranks advance as far as can be told. The time is in unix seconds."""
    if not any(rank.stalled for rank in ranks):
        return None
    living = [rank for rank in ranks if rank.state != "exited"]
    ended = [rank for rank in ranks if rank.state == "exited"]
    if not living or any(rank.exit_code != 0 or rank.asked for rank in ended):
        return None
    gang = _Gang([rank for rank in living if rank.stalled], living, ended, layout, now)
    if not gang.stalled:
        return None
    if stopped := gang.stopped():
        return stopped
    if len(gang.stalled) < len(living):
        return gang.find_working_rank()
    return gang.left_behind() or gang.cut() or gang.mismatch() or gang.groups() or gang.hang()


class _Gang:
    """The ranks of an attempt and the rules for them, one method for each kind of hang."""

    def __init__(
        self,
        stalled: Sequence[RankStatus],
        living: Sequence[RankStatus],
        ended: Sequence[RankStatus],
        site: GangLayout,
        moment: float,
    ) -> None:
        self.stalled, self.living, self.ended, self.site, self.moment = stalled, living, ended, site, moment
        self.waiting = [rank for rank in stalled if _get_evidence(rank)["in"]]
        self.odd = [rank for rank in stalled if not _get_evidence(rank)["in"]]
        self.since = max((_get_evidence(rank)["since"] for rank in stalled), default=moment)

    # --- the kinds ---

    def stopped(self) -> HangVerdict | None:
        """A signal or a debugger holds ranks: waiting for them is normal."""
        held = [rank for rank in self.stalled if _get_evidence(rank)["stopped"]]
        if not held:
            return None
        by = _get_evidence(held[0])["stopped"]
        pids = [_get_evidence(rank)["stopped"]["pid"] or rank.pid for rank in held]
        more = {"pids": " ".join(str(pid) for pid in pids[:MAX_NAMED] if pid)}
        more |= {name: by[name] for name in ("signal", "tracer") if by[name]}
        return self._verdict(STOPPED, held, certain=False, level=Level.FAIL, more=more)

    def find_working_rank(self) -> HangVerdict | None:
        """Some wait for ranks that advance: after very long, that is suspicious."""
        works = [rank for rank in self.living if not rank.stalled]
        oldest = min(_get_evidence(rank)["since"] for rank in self.stalled)
        lasts = self.moment - oldest
        if not self.waiting or lasts < KEPT_WAITING_SECONDS:
            return None
        level = Level.WARN if lasts >= 3 * WARNING_SECONDS else Level.INFO
        return self._verdict(SUSPECTED, works, certain=False, level=level, since=oldest, why="works")

    def left_behind(self) -> HangVerdict | None:
        """Rank 0 has ended, so the task is done; others remain."""
        if not self.ended or any(rank.rank == 0 for rank in self.living):
            return None
        over = max(rank.ended_at or 0.0 for rank in self.ended)
        if (
            not all(_is_still(rank) for rank in self.stalled)
            or self.moment - max(over, self.since) < LEFT_BEHIND_SECONDS
        ):
            return None
        return self._verdict(LEFT, self.stalled, certain=True, level=Level.WARN)

    def cut(self) -> HangVerdict | None:
        """Connections are dead. Of several pairs of nodes the one between which most of them are."""
        dead = [
            (rank.node_rank, str(link["peer"]), link)
            for rank in self.stalled
            for link in _get_evidence(rank)["links"]
            if _is_dead(link["retries"] or 0, link["seconds"] or 0.0)
        ]
        if not dead or not all(_is_still(rank) for rank in self.waiting or self.stalled):
            return None
        pairs = Counter(
            frozenset((here, there))
            for here, peer, _ in dead
            if (there := self.site.addresses.get(peer)) is not None and there != here
        )
        if pairs:
            (pair, _), *_ = pairs.most_common(1)
            nodes = sorted(pair)
        else:
            nodes = sorted({here for here, _, _ in dead})[:1]
        peers = sorted({peer for here, peer, _ in dead if here in nodes})
        unacked = sum(link["unacked"] or 0 for _, _, link in dead)
        params = {
            "node": self.site.name(nodes[0]), "nodeRank": nodes[0], "count": len(dead), "bytes": unacked,
            "other": self.site.name(nodes[1]) if len(nodes) > 1 else ", ".join(peers[:3]),
            **self._duration(max(link["seconds"] for _, _, link in dead)),
        }  # fmt: skip
        lines = [
            f"{self.site.name(here)} -> {self.site.at(peer)}{peer}:{link['port']}: "
            f"{link['unacked']} bytes unacknowledged, {link['retries']} retries"
            for here, peer, link in dead[:MAX_GROUPS]
        ]
        finding = Finding(
            CUT,
            Level.FAIL,
            params,
            where=[Where(node_rank=node, node=self.site.name(node)) for node in nodes],
            since=self.since,
            evidence=[Evidence("LINKS_DEAD", lines=lines), *self._groups()],
            actions=[
                build_action(ActionCode.PREFLIGHT),
                *self._nodes(nodes),
                build_action(ActionCode.RESTART_FROM_CHECKPOINT),
                build_action(ActionCode.ASK_OPERATOR),
            ],
        )
        return HangVerdict(finding, True, tuple(rank.rank for rank in self.stalled if rank.node_rank in nodes))

    def mismatch(self) -> HangVerdict | None:
        """Ranks are in collectives that can never meet. Only of the group of all: a rank numbers the others as it joins
        them, so two ranks' second groups need not be one. While a rank is elsewhere, a broadcast's root may be ahead of
        those that it does not wait for: then only collectives of one number are compared. The same holds for a rank
        whose GPU still computes what is queued before the broadcast."""
        if len(self.waiting) < 2 or not all(_is_still(rank) for rank in self.waiting):
            return None
        together: dict[tuple[str, int], list[tuple[RankStatus, tuple[Any, ...]]]] = {}
        ops = [
            (rank, op)
            for rank in self.waiting
            if (op := _get_evidence(rank)["op"]) and _is_of_all(op, _get_evidence(rank)["in"])
        ]
        first = min((op["seq"] or 0 for _, op in ops), default=0)
        for rank, op in ops:
            seq = op["seq"] or 0
            number = seq if len(ops) < len(self.stalled) else 0
            said = _find_passed(rank, str(op["group"]), first) if seq != first and not number else None
            if seq != first and said is None and self.a_gpu_computes():
                number = seq
            together.setdefault((str(op["group"]), number), []).append(
                (rank, said or (seq, _get_evidence(rank)["in"], _read_sizes(op["sizes"])))
            )
        for members in together.values():
            kinds = Counter(said for _, said in members)
            if len(kinds) < 2 or not _can_never_meet(list(kinds)):
                continue
            usual = max(kinds, key=lambda said: (kinds[said], -min(r.rank for r, one in members if one == said)))
            others = [(rank, said) for rank, said in members if said != usual]
            apart = others[0][1]
            params = {
                "op": _format_collective(usual), "found": _format_collective(apart), "count": kinds[usual],
                "at": _get_place(_get_evidence(next(rank for rank, said in members if said == usual))),
                "place": _get_place(_get_evidence(others[0][0])),
            }  # fmt: skip
            if apart[0] != usual[0]:
                params |= {"seq": apart[0], "usual": usual[0]}
            return self._verdict(MISMATCH, [rank for rank, _ in others], certain=True, more=params)
        return None

    def groups(self) -> HangVerdict | None:
        """Ranks wait for each other in collectives of different groups, or in one with different roots."""
        if len(self.waiting) < 2 or not all(_is_still(rank) for rank in self.waiting):
            return None
        found, by_rank = collective_groups.list_waits(self.waiting), {rank.rank: rank for rank in self.waiting}
        if differ := collective_groups.find_differing_roots(found):
            (usual, *more), others = differ
            said = [f"{one.op} with root {one.root}" for one in (usual, others[0])]
            there, apart = [usual, *more], others
        elif pair := collective_groups.find_crossed_waits(found, collective_groups.find_overlapping(self.waiting)):
            usual, other = pair
            said = [str(one) for one in pair]
            there, apart = [one for one in found if one.key == usual.key], [other]
        else:
            return None
        params = {
            "op": said[0], "found": said[1], "count": len(there), "at": _get_place(_get_evidence(by_rank[usual.rank])),
            "place": _get_place(_get_evidence(by_rank[apart[0].rank])),
        }  # fmt: skip
        return self._verdict(MISMATCH, [by_rank[one.rank] for one in apart], certain=True, more=params)

    def hang(self) -> HangVerdict | None:
        odd = self.odd or self.waiting
        if not all(_is_still(rank) for rank in odd):
            working = [rank for rank in odd if not _get_evidence(rank)["still"]]
            disk = [rank for rank in working if _get_evidence(rank)["state"] == "D"]
            if not all(_has_looks(rank) for rank in odd):
                return None
            if all(_get_evidence(rank)["children"] for rank in working):
                return self._verdict(SUSPECTED, working, certain=False, level=Level.INFO, why="children")
            return self._verdict(SUSPECTED, disk or working, certain=False, why="disk" if disk else "computes")
        meet = all(_get_evidence(rank)["in"] == RENDEZVOUS_FUNCTION for rank in self.waiting)
        begun = self.site.patient or any(_get_evidence(rank)["step"] for rank in self.stalled) or not meet
        if not begun:
            return self._verdict(SUSPECTED, odd, certain=False, why="starting")
        lasts = self.moment - self.since
        whys = [why for rank in self.odd if not self.site.patient and (why := _find_doubt(rank, lasts, self.site))]
        if whys:
            return self._verdict(SUSPECTED, odd, certain=False, why=whys[0])
        if self.is_deadlock():
            return self._verdict(HANG, odd, certain=True)
        if not self.odd and self.a_gpu_computes():
            return self._verdict(HANG, odd, certain=False, level=Level.WARN)
        if self.site.patient or lasts >= self.site.patience:
            return self._verdict(HANG, odd, certain=True)
        return self._verdict(HANG, odd, certain=False, level=Level.WARN, more={"patience": round(self.site.patience)})

    def is_deadlock(self) -> bool:
        """Return whether no rank can ever continue: each rank that the others wait for waits for a lock which only its
        own threads can release, and all of these wait so, too; or all wait in collectives of all ranks, one of which
        has ended. Collectives that can never meet: see `mismatch`."""
        if self.odd:
            return all(_get_evidence(rank)["locked"] and not _get_evidence(rank)["moves"] for rank in self.odd)
        return bool(self.ended) and all(
            _get_evidence(rank)["op"] and _is_of_all(_get_evidence(rank)["op"], _get_evidence(rank)["in"])
            for rank in self.waiting
        )

    def a_gpu_computes(self) -> bool:
        """Return whether the GPU of a waiting rank computes: NCCL's own kernel, or one before it in its stream. NVML's
        utilisation says of both that a kernel was running (NVML's API reference, `nvmlUtilization_t`), and torch's
        flight recorder calls a collective `scheduled` until it has ended, unless TORCH_NCCL_ENABLE_TIMING is set (torch
        2.11, `FlightRecorder`)."""
        return any(_get_evidence(rank)["gpu"] for rank in self.waiting)

    # --- what is said of them ---

    def _verdict(
        self,
        code: str,
        named: Sequence[RankStatus],
        *,
        certain: bool,
        level: Level | None = None,
        since: float | None = None,
        why: str = "",
        more: Mapping[str, Any] | None = None,
    ) -> HangVerdict:
        since = self.since if since is None else since
        named = sorted(named, key=lambda rank: rank.rank)
        lasts = self.moment - since
        if level is None:
            level = Level.FAIL if certain else Level.WARN if lasts >= WARNING_SECONDS else Level.INFO
        nodes = sorted({rank.node_rank for rank in named})
        others = [rank for rank in self.waiting if rank not in named]
        params: dict[str, Any] = {
            "ranks": format_names([rank.rank for rank in named]),
            "node": format_names([self.site.name(node) for node in nodes]),
            **self._duration(lasts),
            **({"place": place} if (place := _find_most_common([_get_place(_get_evidence(rank)) for rank in named if
            rank.stalled])) else {}),
            **({"why": why} if why else {}),
        }  # fmt: skip
        if len(named) == 1:
            params |= {"rank": named[0].rank, "nodeRank": named[0].node_rank}
        if others:
            params |= {
                "count": len(others),
                "op": _find_most_common([_get_evidence(rank)["in"] for rank in others]) or "a collective",
            }
            params |= (
                {"at": at} if (at := _find_most_common([_get_place(_get_evidence(rank)) for rank in others])) else {}
            )
        elif named and all(rank in self.waiting for rank in named):
            params |= {
                "op": _find_most_common([_get_evidence(rank)["in"] for rank in named]) or "a collective",
                "all": len(named),
            }
        finding = Finding(
            code,
            level,
            {**params, **(more or {})},
            where=[Where(rank.rank, rank.node_rank, self.site.name(rank.node_rank)) for rank in named[:MAX_NAMED]],
            since=since,
            evidence=[*self._incomplete(), *self._groups(), *self._ras()],
            actions=self._actions(code, named, nodes),
        )
        return HangVerdict(finding, certain, tuple(rank.rank for rank in named))

    def _actions(self, code: str, named: Sequence[RankStatus], nodes: Sequence[int]) -> list[Action]:
        at = next((_get_place(_get_evidence(rank)) for rank in named if rank.stalled), "")
        logs = [build_action(ActionCode.SEE_LOG, rank=named[0].rank)] if named else []
        if code == LEFT:
            return [build_action(ActionCode.EDIT_SCRIPT, at=at), *logs]
        if code == MISMATCH:
            return [build_action(ActionCode.EDIT_SCRIPT, at=at), *logs, build_action(ActionCode.STOP)]
        if code == STOPPED:
            pids = [(rank, _get_evidence(rank)["stopped"]["pid"] or rank.pid) for rank in named[:MAX_GROUPS]]
            named_by = [(pid, self.site.name(rank.node_rank)) for rank, pid in pids if pid]
            return [*(build_action(ActionCode.CONTINUE_PROCESS, pid=pid, node=node) for pid, node in named_by), *logs]
        if code == SUSPECTED:
            return [
                *logs,
                build_action(ActionCode.WAIT),
                build_action(ActionCode.RESTART_FROM_CHECKPOINT),
                build_action(ActionCode.RAISE_LIMIT, field="hangSeconds"),
            ]
        one_node = self._nodes(nodes) if len(nodes) == 1 and len(self.site.names) > 1 else []
        return [build_action(ActionCode.RESTART_FROM_CHECKPOINT), *logs, build_action(ActionCode.EDIT_SCRIPT, at=at),
                *one_node, build_action(ActionCode.RAISE_LIMIT, field="hangSeconds")]  # fmt: skip

    def _nodes(self, nodes: Sequence[int]) -> list[Action]:
        return [
            build_action(code, nodeRank=node, node=self.site.name(node))
            for node in nodes
            for code in (ActionCode.USE_SPARE, ActionCode.WITHOUT_NODE, ActionCode.CORDON)
        ]

    def _groups(self) -> list[Evidence]:
        """Return the ranks by the place where they are, the fewest first: a rank that is alone is the one waited
        for."""
        groups: dict[tuple[str, ...], list[RankStatus]] = {}
        for rank in self.stalled:
            groups.setdefault((_get_evidence(rank)["in"], *_get_evidence(rank)["stack"][:MAX_STACK_FRAMES]), []).append(
                rank
            )
        found = []
        for members in sorted(groups.values(), key=len)[:MAX_GROUPS]:
            first = _get_evidence(members[0])
            nodes = format_names([self.site.name(node) for node in sorted({rank.node_rank for rank in members})])
            params = {"ranks": format_names([rank.rank for rank in members]), "node": nodes, "count": len(members)}
            params |= {"op": _format_wait(first)} if first["in"] else {}
            where = Where(members[0].rank, members[0].node_rank, self.site.name(members[0].node_rank))
            found.append(Evidence("STACK_OF_RANKS", params, list(first["stack"]), where))
            if threads := list(first["threads"]):
                found.append(Evidence("THREADS_OF_RANKS", params, threads, where))
        return found

    def _incomplete(self) -> list[Evidence]:
        """Return collectives of groups of some of the ranks, and which ranks are missing from them."""
        whole = len(self.living) + len(self.ended)
        unsure = collective_groups.find_overlapping(self.stalled)
        lacking = collective_groups.find_incomplete(collective_groups.list_waits(self.waiting), unsure)
        found = [one for one in lacking if len(one.wait.members) < whole]
        return [
            Evidence(
                "COLLECTIVE_LACKS",
                {"op": str(one.wait), "ranks": format_names(one.arrived), "missing": format_names(one.missing)},
            )
            for one in found[:MAX_GROUPS]
        ]

    def _ras(self) -> list[Evidence]:
        """Return what NCCL itself reports of the job; every one of its processes reports the same."""
        told = next((rank for rank in self.stalled if _get_evidence(rank)["ras"]), None)
        if told is None:
            return []
        where = Where(told.rank, told.node_rank, self.site.name(told.node_rank))
        return [Evidence("NCCL_SAYS", lines=list(_get_evidence(told)["ras"]), where=where)]

    def _duration(self, seconds: float) -> dict[str, int]:
        return {"seconds": max(0, round(seconds))}


_NO_EVIDENCE: Mapping[str, Any] = {
    "in": "", "still": False, "looks": 0, "since": 0.0, "stack": (), "threads": (), "links": (), "at": "",
    "state": "", "waits": "", "op": None, "step": None, "flight": None, "ras": (), "children": False,
    "moves": False, "timed": False, "locked": False, "stopped": None, "gpu": False,
}  # fmt: skip


def _get_evidence(rank: RankStatus) -> StallEvidence:
    """Return what the runner reports of a rank that has stalled; a part that was not believed counts as not
    reported."""
    said = rank.stalled or {}
    found = {name: nothing if said.get(name) is None else said[name] for name, nothing in _NO_EVIDENCE.items()}
    if not found["in"] and any(frame.startswith(f"{RENDEZVOUS_FUNCTION} (torch/") for frame in found["stack"]):
        found["in"] = RENDEZVOUS_FUNCTION
    return found


def _is_dead(retries: int, seconds: float) -> bool:
    return retries >= MIN_RETRIES and (seconds >= SILENT_SECONDS or retries >= MANY_RETRIES)


def _has_looks(rank: RankStatus) -> bool:
    return bool(_get_evidence(rank)["looks"] >= MIN_LOOKS)


def _is_still(rank: RankStatus) -> bool:
    return bool(_get_evidence(rank)["still"]) and _has_looks(rank)


def _find_doubt(rank: RankStatus, seconds: float, layout: GangLayout) -> str:
    """Return why a rank that is still may continue all the same, or "". Waiting for a timer, and coming back from
    waits, are progress however long they last. The other end of a connection, and a program of its own, may be at work
    unseen: that is a doubt until it has lasted as long as the project's past requires."""
    said = _get_evidence(rank)
    if any(word in said["waits"] for word in _SLEEPS) or said["timed"]:
        return "sleeps"
    if said["moves"]:
        return "moves"
    if seconds >= layout.patience:
        return ""
    if said["waits"] == CHILD_WAIT:
        return "child"
    return "network" if any(word in said["waits"] for word in _CONNECTIONS) else ""


def _get_place(evidence: StallEvidence) -> str:
    """Return the script's own line; without one, the innermost of all."""
    return str(evidence["at"] or next(iter(evidence["stack"]), ""))


def _read_sizes(sizes: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(one) if isinstance(one, list | tuple) else (one,) for one in sizes or ())


def _is_of_all(op: Mapping[str, Any], name: str) -> bool:
    """Return whether all ranks take part: no point-to-point operation, and no group of some ranks."""
    between_two = name.split(" ")[0] in ("send", "recv", "isend", "irecv")
    return not between_two and str(op["group"]).rpartition(" ")[2] == "0"


def _find_passed(rank: RankStatus, group: str, seq: int) -> tuple[Any, ...] | None:
    """Return what a rank that is ahead did in the collective in which others still wait, from its flight recorder."""
    for one in (_get_evidence(rank)["flight"] or {}).get("last") or ():
        if one["seq"] == seq and str(one["group"]) == group:
            return seq, str(one["op"]), _read_sizes(one["sizes"])
    return None


def _can_never_meet(kinds: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether they can never meet. Some collectives take tensors of different sizes."""
    seqs, ops = {seq for seq, _, _ in kinds}, {op for _, op, _ in kinds}
    if len(ops) > 1 or len(seqs) > 1:
        return True
    uneven = any(word in op for op in ops for word in ("gather", "scatter", "all_to_all", "alltoall"))
    return not uneven and len({sizes for _, _, sizes in kinds}) > 1


def _format_collective(collective: tuple[Any, ...]) -> str:
    _, op, sizes = collective
    return f"{op} {', '.join(str(list(one)) for one in sizes[:4])}".strip()


def _format_wait(evidence: StallEvidence) -> str:
    op = evidence["op"]
    return _format_collective((None, evidence["in"], _read_sizes(op["sizes"]))) if op else str(evidence["in"])


def _find_most_common(texts: Sequence[str]) -> str:
    """Return the most frequent text."""
    counted = Counter(text for text in texts if text)
    return counted.most_common(1)[0][0] if counted else ""
