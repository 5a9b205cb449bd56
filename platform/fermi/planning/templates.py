"""The requirement document's use cases (004) as requests ready to be filled with environments: `templates.toml`.

Each has a small stand-in of the same kind, which trains in seconds wherever there are as many processes.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fermi.jobs.spec import Node, Problem

FALLBACK = "en"


@dataclass(frozen=True, slots=True)
class TemplateVariant:
    """A use case at one size. `gpu_type`: empty where any GPU does."""

    nodes: int
    gpus_per_node: int
    framework: str
    hyperparameters: Mapping[str, Any]
    strategy: Mapping[str, int]
    options: Mapping[str, Any]
    gpu_type: str = ""
    same_zone: bool = False
    script: str = ""
    """A script, where the framework has no recipe."""

    def choose(self, available: Sequence[Node]) -> tuple[list[Node], list[Problem]]:
        """Return the nodes that the variant needs, of the available ones that one task may use, and what is missing."""
        fitting = [node for node in available if max(node.gpu_count, 1) == self.gpus_per_node]
        fitting.sort(key=lambda node: (not self._is_right_type(node), not node.has_cuda))
        zones = Counter(node.zone for node in fitting)
        missing = []
        if self.same_zone and zones:
            zone, most = zones.most_common(1)[0]
            if most < self.nodes <= len(fitting):
                missing.append(Problem("environmentIds", "TEMPLATE_ZONES_DIFFER", {"zone": zone, "found": most}))
            else:
                fitting = [node for node in fitting if node.zone == zone]
        chosen = fitting[: self.nodes]
        if lacks := self.nodes - len(chosen):
            each = f"{self.gpus_per_node}x{self.gpu_type or 'GPU'}"
            params = {"lacks": lacks, "each": each, "found": len(chosen), "nodes": self.nodes}
            missing.append(Problem("environmentIds", "TEMPLATE_LACKS_NODES", params))
        if others := [f"{node.name} ({node.gpu_type})" for node in chosen if not self._is_right_type(node)]:
            params = {"environments": ", ".join(others), "type": self.gpu_type}
            missing.append(Problem("environmentIds", "TEMPLATE_OTHER_GPUS", params))
        return chosen, missing

    def _is_right_type(self, node: Node) -> bool:
        return self.gpu_type in node.gpu_type

    def request(self, name: str, nodes: Sequence[Node]) -> dict[str, Any]:
        """Return the request without data and model, which the user chooses."""
        ids = [node.id for node in nodes]
        config = {
            "enabled": True,
            "nodeIds": ids,
            "masterNode": ids[0] if ids else None,
            "framework": self.framework,
            **({"strategy": {**self.strategy}} if self.strategy else {}),
            **({"options": {**self.options}} if self.options else {}),
        }
        return {
            "taskName": name,
            "launchMode": "existing",
            "distributedConfig": config,
            **({"entrypoint": {"script": self.script, "args": []}} if self.script else {}),
            "hyperparameters": {**self.hyperparameters},
        }


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """A use case, at full size and at a small one. `texts`: by language, as in `templates.toml`."""

    id: str
    full: TemplateVariant
    small: TemplateVariant
    texts: Mapping[str, Mapping[str, Any]]

    def localize(self, lang: str) -> Mapping[str, Any]:
        return {**self.texts[FALLBACK], **self.texts.get(lang, {})}


@cache
def load_templates() -> dict[str, TaskTemplate]:
    """Return the templates by id, in the document's order."""
    table = tomllib.loads(Path(__file__).with_name("templates.toml").read_text(encoding="utf-8"))
    return {key: _build_template(key, entry) for key, entry in table.items()}


def _build_template(key: str, entry: dict[str, Any]) -> TaskTemplate:
    small = entry.pop("small")
    texts = {lang: entry.pop(lang) for lang in [name for name, part in entry.items() if _is_text(part)]}
    return TaskTemplate(key, _build_variant(entry), _build_variant({"framework": entry["framework"], **small}), texts)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and "title" in part


def _build_variant(entry: Mapping[str, Any]) -> TemplateVariant:
    return TemplateVariant(
        nodes=entry["nodes"],
        gpus_per_node=entry["gpusPerNode"],
        gpu_type=entry.get("gpuType", ""),
        same_zone=entry.get("sameZone", False),
        script=entry.get("script", ""),
        framework=entry["framework"],
        strategy=entry.get("strategy", {}),
        options=entry.get("options", {}),
        hyperparameters=entry["hyperparameters"],
    )
