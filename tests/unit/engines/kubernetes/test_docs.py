"""docs/kubernetes.md has every code that Kubernetes can lead to, and says the same of it as the platform does."""

import ast
import re
from pathlib import Path

from apps.training.states.reasons import CAUSES
from fermi import messages
from fermi.engines import kubernetes
from fermi.engines.kubernetes.check import CONNECTION
from fermi.engines.kubernetes.permissions import RULES
from fermi.jobs.causes import BOUND_CODES, RANK_LEFT_EARLY
from fermi.planning import plugins

PACKAGE = Path(kubernetes.__file__).parent


def text(root: Path) -> str:
    return (root / "docs" / "kubernetes.md").read_text("utf-8")


def codes() -> set[str]:
    """Every code that the package mentions, and the rule that all engines share."""
    known = messages.list_texts("en")
    trees = [
        ast.parse(path.read_text("utf-8")) for path in (*PACKAGE.glob("*.py"), PACKAGE.parent / "failure_cause.py")
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and node.value in known} | {
        *BOUND_CODES,
        RANK_LEFT_EARLY.code,
    }


def test_every_code_is_listed(root: Path) -> None:
    assert len(codes()) > 30
    assert codes() <= set(re.findall(r"`([A-Z_]+)`", text(root)))


def test_the_column_of_restarts_matches_the_platform(root: Path) -> None:
    section = text(root).split("## Reason codes")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \|.*\| (yes|no) \|$", section, re.MULTILINE)
    listed = {code: word == "yes" for names, word in rows for code in re.findall(r"[A-Z_]+", names)}
    known = CAUSES | plugins.get_causes("kubernetes")
    assert listed == {code: known[code].retry for code in listed}
    assert listed.keys() == (codes() & known.keys()) - {"LOG_UNAVAILABLE", "NODE_SILENT"}, "which end no attempt"


def test_every_key_of_a_connection_is_listed(root: Path) -> None:
    table = text(root).split("## The connection")[1].split("\n**")[0]
    assert set(CONNECTION["properties"]) == set(re.findall(r"`(\w+)`", re.sub(r"(?m)^(\|[^|]*\|).*$", r"\1", table)))


def test_every_resource_of_the_permissions_is_listed(root: Path) -> None:
    table = text(root).split("## Permissions")[1].split("\n## ")[0]
    for rule in RULES:
        assert rule.resource in table
        assert rule.group in table
