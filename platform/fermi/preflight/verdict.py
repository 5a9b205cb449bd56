"""Combines what the nodes printed into one report: a level for each node and pair, and what is at fault. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fermi.jobs.ranks import place
from fermi.jobs.spec import JobSpec
from fermi.planning import plugins
from fermi.preflight import links, nodes
from fermi.preflight.facts import Facts, Member, lines, sort  # noqa: F401 (for others)
from fermi.preflight.findings import FAIL, PASS, UNKNOWN, WARN, Culprit, Finding, worst

Report = dict[str, Any]


def members(job: JobSpec) -> list[Member]:
    """Return the nodes in the order in which `plan` ranks them."""
    return [
        Member(
            at.node_rank, at.node.id, at.node.name, at.node.gpu_count if at.node.has_cuda else 0,
            str(at.node.engine.get("pod") or "") if at.node.inside else "",
        )
        for at in place(job.nodes, job.master)
    ]  # fmt: skip


def judge(who: Sequence[Member], said: Iterable[Mapping[str, Any]], level: str, framework: str = "") -> Report:
    """Return the report as JSON, as it is stored. `level`: quick or full; `framework`: what is to be trained with,
    empty where unknown."""
    facts, stack = sort(said), plugins.stack(framework) if framework else ""
    between = links.judge(who, facts)
    found = {member.rank: [*nodes.findings(member, facts, stack), *between.nodes[member.rank]] for member in who}
    culprits = [
        Culprit((rank,), one.level, one.code, one.params)
        for rank, findings in found.items() for one in findings
        if one.level != PASS and one not in between.nodes[rank]
    ]  # fmt: skip
    culprits += between.culprits
    for ranks, one in nodes.drift(who, facts, stack):
        culprits.append(Culprit(tuple(ranks), one.level, one.code, one.params))
        for rank in ranks:
            found[rank].append(one)
    for member in who:
        found[member.rank] += _reassuring(member, facts, found[member.rank])
    pairs = [_pair(here, there, facts, between) for here in who for there in who if here is not there]
    together = _together(who, facts, culprits) if level == "full" else None
    shown = {member.rank: member for member in who}
    return {
        "nodes": [
            {"id": member.id, "name": member.name, "level": worst(one.level for one in found[member.rank]),
             "findings": [one.to_json() for one in found[member.rank]]}
            for member in who
        ],
        "pairs": pairs,
        "together": together,
        "verdict": _verdict(shown, culprits, len(pairs)),
    }  # fmt: skip


def _reassuring(member: Member, facts: Facts, found: Sequence[Finding]) -> list[Finding]:
    """Return passed checks that are worth reading."""
    if not facts.get(member.rank, "node"):
        return []
    good = []
    if not any(one.check == "versions" for one in found):
        good.append(Finding("versions", PASS, "VERSIONS_OK", value=nodes.versions(member.rank, facts)))
    ways = {
        pair["interface"] for (rank, _), pair in facts.pairs.items() if rank == member.rank and pair.get("interface")
    }
    if ways:
        names = ",".join(sorted(ways))
        good.append(Finding("interface", PASS, "INTERFACE", {"names": names}, {"NCCL_SOCKET_IFNAME": f"={names}"}))
    return good


def _pair(here: Member, there: Member, facts: Facts, between: links.Links) -> Report:
    key = here.rank, there.rank
    fact, findings = facts.pairs.get(key, {}), between.pairs.get(key, [])
    tried = fact.get("free") == "ok" or bool(findings)
    return {
        "from": here.id,
        "to": there.id,
        "level": worst([PASS, *(one.level for one in findings)]) if tried else UNKNOWN,
        "rttMs": fact.get("rttMs"),
        "bandwidthMbps": facts.bandwidth.get(key),
        "interface": fact.get("interface"),
        "findings": [one.to_json() for one in findings],
    }


def _together(who: Sequence[Member], facts: Facts, culprits: list[Culprit]) -> Report:
    """Return the result of the collective test, and add the nodes where it failed to `culprits`, unless the reason has
    been found before."""
    said = {member.rank: facts.together.get(member.rank, {}) for member in who}
    done = [one for one in said.values() if one.get("allReduceMs") is not None]
    result: Report = {"allReduceMs": None, "barrierMs": None, "findings": []}
    if len(done) == len(who):
        backend, size = done[0]["backend"], done[0]["megabytes"]
        result["allReduceMs"] = max(one["allReduceMs"] for one in done)
        result["barrierMs"] = max(one["barrierMs"] for one in done)
        found = Finding("together", PASS, "TOGETHER_OK", {"backend": backend, "size": size})
    elif any(one.get("error") for one in said.values()):
        failed = [rank for rank, one in said.items() if one.get("error")]
        names = {member.rank: member.name for member in who}
        errors = {error: [n for r, n in names.items() if said[r].get("error") == error] for error in _errors(said)}
        why = "; ".join(f"{', '.join(on)}: {error}" for error, on in errors.items())
        found = Finding("together", FAIL, "TOGETHER_FAILED", {"why": why})
        if not any(one.level == FAIL for one in culprits):
            culprits.append(Culprit(tuple(failed), FAIL, found.code, found.params))
    else:
        why = next((one["skipped"] for one in said.values() if one.get("skipped")), "nodes")
        found = Finding("together", WARN, f"TOGETHER_SKIPPED_{why.upper()}")
        if not culprits:
            culprits.append(Culprit((), WARN, found.code))
    level = UNKNOWN if found.level == WARN else found.level
    return {**result, "level": level, "findings": [found.to_json()]}


def _errors(said: Mapping[int, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(one["error"] for one in said.values() if one.get("error")))


def _verdict(who: Mapping[int, Member], culprits: Sequence[Culprit], pairs: int) -> Report:
    level = worst([PASS, *(one.level for one in culprits)])
    return {
        "level": level,
        "code": f"PREFLIGHT_VERDICT_{level.upper()}",
        "params": {
            "nodes": len(who),
            "pairs": pairs,
            "count": len([one for one in culprits if one.level == level]) if level != PASS else 0,
        },
        "culprits": [
            {"nodes": [who[rank].id for rank in one.ranks], "level": one.level, "code": f"PREFLIGHT_{one.code}",
             "params": dict(one.params)}
            for one in sorted(culprits, key=lambda one: one.level != FAIL)
        ],
    }  # fmt: skip
