"""Combines what the nodes printed into one report: a level for each node and pair, and what is at fault. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec
from fermi.planning import plugins
from fermi.preflight import links, nodes
from fermi.preflight.facts import NodeUnderTest, PreflightFacts, parse_facts, sort_facts  # noqa: F401 (for others)
from fermi.preflight.findings import FAIL, PASS, UNKNOWN, WARN, Culprit, PreflightFinding, find_worst

Report = dict[str, Any]


def list_members(job: JobSpec) -> list[NodeUnderTest]:
    """Return the nodes in the order in which `plan` ranks them."""
    return [
        NodeUnderTest(
            at.node_rank, at.node.id, at.node.name, at.node.gpu_count if at.node.has_cuda else 0,
            str(at.node.engine.get("pod") or "") if at.node.inside else "",
        )
        for at in place_nodes(job.nodes, job.master)
    ]  # fmt: skip


def build_report(
    members: Sequence[NodeUnderTest], facts_printed: Iterable[Mapping[str, Any]], level: str, framework: str = ""
) -> Report:
    """Return the report as JSON, as it is stored. `level`: quick or full; `framework`: what is to be trained with,
    empty where unknown."""
    facts, stack = sort_facts(facts_printed), plugins.get_stack(framework) if framework else ""
    between = links.judge_links(members, facts)
    found = {member.rank: [*nodes.check_node(member, facts, stack), *between.nodes[member.rank]] for member in members}
    culprits = [
        Culprit((rank,), one.level, one.code, one.params)
        for rank, findings in found.items() for one in findings
        if one.level != PASS and one not in between.nodes[rank]
    ]  # fmt: skip
    culprits += between.culprits
    for ranks, one in nodes.find_version_drift(members, facts, stack):
        culprits.append(Culprit(tuple(ranks), one.level, one.code, one.params))
        for rank in ranks:
            found[rank].append(one)
    for member in members:
        found[member.rank] += _list_passed(member, facts, found[member.rank])
    pairs = [_build_pair(here, there, facts, between) for here in members for there in members if here is not there]
    together = _build_together(members, facts, culprits) if level == "full" else None
    shown = {member.rank: member for member in members}
    return {
        "nodes": [
            {"id": member.id, "name": member.name, "level": find_worst(one.level for one in found[member.rank]),
             "findings": [one.to_json() for one in found[member.rank]]}
            for member in members
        ],
        "pairs": pairs,
        "together": together,
        "verdict": _build_verdict(shown, culprits, len(pairs)),
    }  # fmt: skip


def _list_passed(
    member: NodeUnderTest, facts: PreflightFacts, findings: Sequence[PreflightFinding]
) -> list[PreflightFinding]:
    """Return passed checks that are worth reading."""
    if not facts.get(member.rank, "node"):
        return []
    good = []
    if not any(one.check == "versions" for one in findings):
        good.append(PreflightFinding("versions", PASS, "VERSIONS_OK", value=nodes.read_versions(member.rank, facts)))
    ways = {
        pair["interface"] for (rank, _), pair in facts.pairs.items() if rank == member.rank and pair.get("interface")
    }
    if ways:
        names = ",".join(sorted(ways))
        good.append(
            PreflightFinding("interface", PASS, "INTERFACE", {"names": names}, {"NCCL_SOCKET_IFNAME": f"={names}"})
        )
    return good


def _build_pair(
    source: NodeUnderTest, target: NodeUnderTest, facts: PreflightFacts, between: links.LinkFindings
) -> Report:
    key = source.rank, target.rank
    fact, findings = facts.pairs.get(key, {}), between.pairs.get(key, [])
    tried = fact.get("free") == "ok" or bool(findings)
    return {
        "from": source.id,
        "to": target.id,
        "level": find_worst([PASS, *(one.level for one in findings)]) if tried else UNKNOWN,
        "rttMs": fact.get("rttMs"),
        "bandwidthMbps": facts.bandwidth.get(key),
        "interface": fact.get("interface"),
        "findings": [one.to_json() for one in findings],
    }


def _build_together(members_tested: Sequence[NodeUnderTest], facts: PreflightFacts, culprits: list[Culprit]) -> Report:
    """Return the result of the collective test, and add the nodes where it failed to `culprits`, unless the reason has
    been found before."""
    said = {member.rank: facts.together.get(member.rank, {}) for member in members_tested}
    done = [one for one in said.values() if one.get("allReduceMs") is not None]
    result: Report = {"allReduceMs": None, "barrierMs": None, "findings": []}
    if len(done) == len(members_tested):
        backend, size = done[0]["backend"], done[0]["megabytes"]
        result["allReduceMs"] = max(one["allReduceMs"] for one in done)
        result["barrierMs"] = max(one["barrierMs"] for one in done)
        found = PreflightFinding("together", PASS, "TOGETHER_OK", {"backend": backend, "size": size})
    elif any(one.get("error") for one in said.values()):
        failed = [rank for rank, one in said.items() if one.get("error")]
        names = {member.rank: member.name for member in members_tested}
        errors = {error: [n for r, n in names.items() if said[r].get("error") == error] for error in _list_errors(said)}
        why = "; ".join(f"{', '.join(on)}: {error}" for error, on in errors.items())
        found = PreflightFinding("together", FAIL, "TOGETHER_FAILED", {"why": why})
        if not any(one.level == FAIL for one in culprits):
            culprits.append(Culprit(tuple(failed), FAIL, found.code, found.params))
    else:
        why = next((one["skipped"] for one in said.values() if one.get("skipped")), "nodes")
        found = PreflightFinding("together", WARN, f"TOGETHER_SKIPPED_{why.upper()}")
        if not culprits:
            culprits.append(Culprit((), WARN, found.code))
    level = UNKNOWN if found.level == WARN else found.level
    return {**result, "level": level, "findings": [found.to_json()]}


def _list_errors(facts_by_rank: Mapping[int, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(one["error"] for one in facts_by_rank.values() if one.get("error")))


def _build_verdict(members_by_rank: Mapping[int, NodeUnderTest], culprits: Sequence[Culprit], pairs: int) -> Report:
    level = find_worst([PASS, *(one.level for one in culprits)])
    return {
        "level": level,
        "code": f"PREFLIGHT_VERDICT_{level.upper()}",
        "params": {
            "nodes": len(members_by_rank),
            "pairs": pairs,
            "count": len([one for one in culprits if one.level == level]) if level != PASS else 0,
        },
        "culprits": [
            {"nodes": [members_by_rank[rank].id for rank in one.ranks], "level": one.level, "code":
             f"PREFLIGHT_{one.code}", "params": dict(one.params)}
            for one in sorted(culprits, key=lambda one: one.level != FAIL)
        ],
    }  # fmt: skip
