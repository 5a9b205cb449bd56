"""Checks the links between nodes. A fault is attributed to as few nodes as explain it: a wrong name before a dead link,
one node whose links are all dead before its peers, and a link where only one is.

    node  a    b    c    d            node  a    b    c    d
    a     ·    ok   X    ok           a     ·    ok   X    ok         X with everybody: c is cut off; drop c
    b     ok   ·    X    ok           b     ok   ·    ok   X          X with one: the link b–d; a and c see both
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high, median_low
from typing import Any

from fermi.preflight.facts import Fact, NodeUnderTest, PreflightFacts
from fermi.preflight.findings import FAIL, WARN, Culprit, PreflightFinding

Pair = tuple[int, int]

SLOW_WARN_SHARE, SLOW_FAIL_SHARE = 1 / 5, 1 / 25
"""Share of what the other nodes reach. A pair that looks slow has been measured four times, and the best counted."""
SLOW_MBPS = 100.0
"""Slow whatever the others do: a gradient of 1 GB takes more than a minute."""
RTT_WARN_MS, RTT_TIMES = 20.0, 10


@dataclass(slots=True)
class LinkFindings:
    """What was found by pair (from, to) and by node, and what is at fault."""

    pairs: dict[Pair, list[PreflightFinding]] = field(default_factory=lambda: defaultdict(list))
    nodes: dict[int, list[PreflightFinding]] = field(default_factory=lambda: defaultdict(list))
    culprits: list[Culprit] = field(default_factory=list)


def judge_links(members: Sequence[NodeUnderTest], facts: PreflightFacts) -> LinkFindings:
    """Return what is wrong between the nodes."""
    return _LinkJudge(members, facts).judged()


class _LinkJudge:
    def __init__(self, members: Sequence[NodeUnderTest], facts: PreflightFacts) -> None:
        self.members, self.facts, self.found = members, facts, LinkFindings()
        self.names = {member.rank: member.name for member in members}
        self.pods = {member.rank: member.pod for member in members if member.pod}
        self.silent = {member.rank for member in members if not facts.by_rank.get(member.rank)}
        self.explained: set[Pair] = set()

    def judged(self) -> LinkFindings:
        self._head()
        self._peer_names()
        self._master_port()
        self._dead()
        self._slow()
        self._far()
        return self.found

    def _blame(self, ranks: Sequence[int], finding: PreflightFinding) -> None:
        self.found.culprits.append(Culprit(tuple(ranks), finding.level, finding.code, finding.params))

    # The head: whether it could listen, and whether its name leads to it -----------------------------------------

    def _head(self) -> None:
        if 0 in self.silent:
            self.explained |= {(rank, 0) for rank in self.names}
            return
        head = self.facts.get(0, "head")
        if taken := head.get("taken"):
            params = {"node": self.names[0], "port": head["port"], "why": taken}
            finding = PreflightFinding("masterPort", FAIL, "MASTER_PORT_TAKEN", params)
            self.found.nodes[0].append(finding)
            self._blame([0], finding)
        for rank in self.names:
            if rank and rank not in self.silent and not self.facts.joined(rank):
                self._without_head(rank, self.facts.get(rank, "head"))

    def _without_head(self, rank: int, fact: Fact) -> None:
        """A node that did not find the head: it came too late, or the head's name leads it astray."""
        if fact.get("late"):
            finding = PreflightFinding("answer", FAIL, "NODE_LATE", {"node": self.names[rank]})
            self._explain(rank, finding)
            return
        asked, resolved = fact.get("asked", ""), set(fact.get("resolved", ()))
        right = self._addresses(0)
        about = {"node": self.names[rank], "name": asked, "peer": self.names[0]}
        if not resolved:
            finding = PreflightFinding("name", FAIL, "NAME_UNKNOWN", {**about, "expected": _format_addresses(right)})
        elif resolved & right or not right:
            return
        else:
            where = fact.get("source") or "DNS"
            params = {
                **about,
                "found": _format_addresses(resolved),
                "expected": _format_addresses(right),
                "source": where,
            }
            finding = PreflightFinding("name", FAIL, "MASTER_ADDR_WRONG" if asked in resolved else "NAME_WRONG", params)
        self._explain(rank, finding)

    def _explain(self, rank: int, finding: PreflightFinding) -> None:
        self.explained |= {(rank, 0), (0, rank)}
        self.found.nodes[rank].append(finding)
        self.found.pairs[rank, 0].append(finding)
        self._blame([rank], finding)

    def _addresses(self, rank: int) -> set[str]:
        """By which it can be meant: its own, and those by which others found it."""
        own = self.facts.get(rank, "node").get("interfaces", {})
        by_others = {
            try_["address"]
            for other in self.names if rank == 0 and other
            for try_ in self.facts.get(other, "head").get("tries", ()) if try_["result"] == "ok"
        }  # fmt: skip
        return {address for found in own.values() for address in found if not _is_local(address)} | by_others

    def _peer_names(self) -> None:
        """A name that leads somewhere else than for the others. Training may not need it; ssh, MPI and people do."""
        asked: dict[str, dict[int, Fact]] = defaultdict(dict)
        for (rank, to), pair in self.facts.pairs.items():
            for name in pair.get("names", ()):
                asked[f"{to} {name['asked']}"][rank] = {**name, "to": to}
        for answers in asked.values():
            some_are_right = any(name["right"] for name in answers.values())
            for rank, name in answers.items():
                if name["right"] is not False or not (some_are_right or name["source"]):
                    continue
                params = {
                    "node": self.names[rank], "name": name["asked"], "peer": self.names[name["to"]],
                    "found": _format_addresses(name["resolved"]), "expected":
                    _format_addresses(self._addresses(name["to"])), "source": name["source"] or "DNS",
                }  # fmt: skip
                finding = PreflightFinding("name", WARN, "NAME_WRONG", params)
                self.found.nodes[rank].append(finding)
                self._blame([rank], finding)

    # The master port: reached by another port of the head, but not by this one ------------------------------------

    def _master_port(self) -> None:
        reached, blocked = [], {}
        for rank in self.names:
            head = self.facts.get(rank, "head")
            if not rank or not self.facts.joined(rank):
                continue
            if head["via"] == head["port"]:
                reached.append(rank)
            else:
                blocked[rank] = next((t["result"] for t in head["tries"] if t["port"] == head["port"]), "timeout")
        if self.facts.get(0, "head").get("taken"):
            return
        port = self.facts.get(0, "head").get("port")
        for rank, result in blocked.items():
            params = {"node": self.names[rank], "peer": self.names[0], "port": port, "why": result}
            finding = PreflightFinding("masterPort", FAIL, "MASTER_PORT_BLOCKED", params)
            self.found.pairs[rank, 0].append(finding)
            if reached:
                self._blame([rank], finding)
        if blocked and not reached:
            others = ", ".join(self.names[rank] for rank in blocked)
            params = {"node": self.names[0], "port": port, "others": others}
            finding = PreflightFinding("masterPort", FAIL, "MASTER_PORT_CLOSED", params)
            self.found.nodes[0].append(finding)
            self._blame([0], finding)

    # Links by which nothing comes, or not everything -----------------------------------------------------------------

    def works(self, pair: Pair) -> bool | None:
        """Return whether the link works; None: it was not tried, because one of the two was missing."""
        if fact := self.facts.pairs.get(pair):
            return bool(fact["free"] == "ok")
        if pair[1] == 0 and pair[0] not in self.silent and not self.facts.joined(pair[0]):
            return False
        return None

    def _dead(self) -> None:
        tried: dict[int, set[int]] = defaultdict(set)
        dead: dict[int, set[int]] = defaultdict(set)
        for low in self.names:
            for high in (rank for rank in self.names if rank > low):
                both = [self.works(pair) for pair in ((low, high), (high, low)) if pair not in self.explained]
                if known := [works for works in both if works is not None]:
                    tried[low].add(high)
                    tried[high].add(low)
                    if not all(known):
                        dead[low].add(high)
                        dead[high].add(low)
        for rank in sorted(dead, key=lambda rank: (-len(dead[rank]), rank)):
            alive_elsewhere = any(tried[other] - dead[other] for other in tried if other != rank)
            if len(tried[rank]) > 1 and dead[rank] == tried[rank] and alive_elsewhere:
                self._cut_off(rank, dead)
        for low in sorted(dead):
            for high in sorted(rank for rank in dead[low] if rank > low):
                self._link(low, high)

    def _cut_off(self, rank: int, dead: dict[int, set[int]]) -> None:
        whys: dict[Pair, PreflightFinding] = {}
        for other in dead.pop(rank):
            dead[other].discard(rank)
            whys |= {p: self._why(p) for p in ((rank, other), (other, rank)) if self.works(p) is False}
        for pair, why in whys.items():
            self.found.pairs[pair].append(why)
        only_ports = all(why.code == "PORTS_BLOCKED" for why in whys.values())
        code = "NODE_PORTS_BLOCKED" if only_ports else "NODE_CUT_OFF"
        params = {"node": self.names[rank], "count": len({other for pair in whys for other in pair} - {rank})}
        finding = PreflightFinding("tcp", FAIL, code, params)
        self.found.nodes[rank].append(finding)
        self._blame([rank], finding)

    def _link(self, low: int, high: int) -> None:
        broken = [pair for pair in ((low, high), (high, low)) if self.works(pair) is False]
        findings = [self._why(pair) for pair in broken]
        for pair, finding in zip(broken, findings, strict=True):
            self.found.pairs[pair].append(finding)
        first = next((one for one in findings if one.code == "LINK_ONE_WAY"), findings[0])
        self._blame([high, low], first)

    def _why(self, pair: Pair) -> PreflightFinding:
        """A TCP connection needs both directions, a datagram only one: it tells which one is dead."""
        here, there = pair
        there_heard, here_heard = here in self.facts.received_from[there], there in self.facts.received_from[here]
        fact = self.facts.pairs.get(pair, {})
        params = {
            "from": self.names[here], "to": self.names[there], "why": fact.get("free", "timeout"),
            **self._place(pair),
        }  # fmt: skip
        if "address" in params and here in self.pods and there in self.pods:
            params["pods"] = f"{self.pods[here]}, {self.pods[there]}"
        if fact.get("master") == "ok" or self.works((there, here)) or (there_heard and here_heard):
            return PreflightFinding("tcp", FAIL, "PORTS_BLOCKED", params)
        if there_heard or here_heard:
            lost = (there, here) if there_heard else pair
            return PreflightFinding(
                "tcp", FAIL, "LINK_ONE_WAY", {"from": self.names[lost[0]], "to": self.names[lost[1]]}
            )
        return PreflightFinding("tcp", FAIL, "LINK_DEAD", params)

    def _place(self, pair: Pair) -> dict[str, Any]:
        """The address and port at which a node was called in vain, where that is known."""
        here, there = pair
        fact = self.facts.pairs.get(pair, {})
        if fact.get("address") and fact.get("port"):
            return {"address": f"{fact['address']}:{fact['port']}"}
        tries = self.facts.get(here, "head").get("tries", ()) if there == 0 else ()
        return {"address": f"{tries[0]['address']}:{tries[0]['port']}", "why": tries[0]["result"]} if tries else {}

    # Links that are slow ------------------------------------------------------------------------------------------

    def _slow(self) -> None:
        measured = {pair: mbps for pair, mbps in self.facts.bandwidth.items() if not self._is_loopback(pair)}
        slow = {pair: mbps for pair, mbps in measured.items() if is_slow(measured, pair)}
        usual = compute_usual_bandwidth(measured)
        for rank in self.names:  # a node of which every way out, or every way in, is slow, while others are not
            for side in (0, 1):
                mine = [pair for pair in measured if pair[side] == rank]
                others = [pair for pair in measured if rank not in pair]
                if len(mine) > 1 and all(pair in slow for pair in mine) and any(pair not in slow for pair in others):
                    finding = self._too_slow(
                        [slow[pair] for pair in mine], usual, "NODE_SLOW", {"node": self.names[rank]}
                    )
                    for pair in mine:
                        self.found.pairs[pair].append(self._of_pair(pair, slow.pop(pair), usual))
                    if not any(one.code == "NODE_SLOW" for one in self.found.nodes[rank]):
                        self.found.nodes[rank].append(finding)
                        self._blame([rank], finding)
        blamed = set()
        for pair, mbps in slow.items():
            finding = self._of_pair(pair, mbps, usual)
            self.found.pairs[pair].append(finding)
            if frozenset(pair) not in blamed:
                blamed.add(frozenset(pair))
                self._blame(pair, finding)

    def _of_pair(self, pair: Pair, mbps: float, usual: float) -> PreflightFinding:
        return self._too_slow([mbps], usual, "LINK_SLOW", {"from": self.names[pair[0]], "to": self.names[pair[1]]})

    @staticmethod
    def _too_slow(times: Sequence[float], usual: float, code: str, params: Mapping[str, Any]) -> PreflightFinding:
        level = FAIL if min(times) < usual * SLOW_FAIL_SHARE else WARN
        return PreflightFinding(
            "bandwidth", level, code, {**params, "found": round(min(times)), "usual": round(usual)}, min(times)
        )

    def _far(self) -> None:
        times = {pair: fact["rttMs"] for pair, fact in self.facts.pairs.items() if fact.get("rttMs") is not None}
        if not times:
            return
        usual = median_low(times.values())
        for pair, found in times.items():
            if found > RTT_WARN_MS and found > RTT_TIMES * usual:
                params = {"from": self.names[pair[0]], "to": self.names[pair[1]], "found": found, "usual": usual}
                finding = PreflightFinding("rtt", WARN, "LINK_FAR", params, found)
                self.found.pairs[pair].append(finding)
                self._blame(pair, finding)

    def _is_loopback(self, pair: Pair) -> bool:
        """Both on one machine: how fast that is says nothing about a network."""
        return _is_local(str(self.facts.pairs.get(pair, {}).get("address", "")))


def compute_usual_bandwidth(measured: Mapping[Pair, float]) -> float:
    """What a node reaches on its best way, in the middle of all nodes: neither one slow link nor one slow node moves
    it, though it may make half of all pairs slow."""
    best: dict[int, float] = defaultdict(float)
    for pair, mbps in measured.items():
        for rank in pair:
            best[rank] = max(best[rank], mbps)
    return median_high(best.values()) if best else 0.0


def is_slow(measured: Mapping[Pair, float], pair: Pair) -> bool:
    return measured[pair] < max(compute_usual_bandwidth(measured) * SLOW_WARN_SHARE, SLOW_MBPS)


def _is_local(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _format_addresses(addresses: Any) -> str:
    return ", ".join(sorted(addresses)) or "–"
