"""What the platform says of a task, as a person reads it, and whether that is right. Pure, but for `ask`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.catalogue.fault import Expected
from tests.platform_process import Running


@dataclass(frozen=True, slots=True)
class Said:
    """The finding that stands first. `text`: its message and hint; `evidence`: what is shown, of whichever finding: a
    log's lines stand on a page once."""

    code: str = ""
    text: str = ""
    hint: str = ""
    evidence: str = ""
    where: Sequence[Mapping[str, Any]] = ()
    actions: Sequence[str] = ()
    whole: Any = None

    @property
    def short(self) -> str:
        return " ".join(f"{self.code}: {self.text}".split())


NOTHING = Said(text="nothing is wrong")


def read_diagnosis(platform: Running, task_id: str) -> Said:
    return find_first_finding(platform.get(f"/training-tasks/{task_id}/diagnosis"))


def list_alarms(diagnosis: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What alarms a reader: INFO alarms nobody."""
    return [one for one in diagnosis["findings"] if one["level"] != "info"]


def find_first_finding(diagnosis: Mapping[str, Any]) -> Said:
    """A reader acts on what stands first; on what only informs where there is nothing else."""
    return next(
        iter(list_statements(list_alarms(diagnosis) or diagnosis["findings"], diagnosis)),
        Said(text=diagnosis["summary"], whole=diagnosis),
    )


def list_statements(findings: Sequence[Mapping[str, Any]], diagnosis: Any = None) -> list[Said]:
    shown = [each for one in findings for each in one["evidence"]]
    evidence = "\n".join("\n".join([each["message"], *each["lines"]]) for each in shown)
    found = []
    for one in findings:
        actions = [action["code"] for action in one["actions"]]
        text = f"{one['message']} {one['hint']}"
        found.append(Said(one["code"], text, one["hint"], evidence, one["where"], actions, diagnosis))
    return found


def list_missing_parts(expected: Expected, said: Said, nodes: Sequence[str], marks: Mapping[str, int]) -> list[str]:
    """What the answer lacks; nothing: it is right."""
    lacks = []
    if said.code not in expected.code.split("|"):
        lacks.append(f"code {expected.code}")
    if expected.rank is not None and expected.rank not in [one["rank"] for one in said.where]:
        lacks.append(f"rank {expected.rank}")
    wanted = [] if expected.node is None else [expected.node] if isinstance(expected.node, int) else expected.node
    named = [one["node"] for one in said.where]
    lacks += [f"node {nodes[node]}" for node in wanted if nodes[node] not in named and nodes[node] not in said.text]
    lacks += [f"says {words}" for words in expected.says if not _has_words(said.text, words, marks)]
    every = f"{said.text}\n{said.evidence}"
    lacks += [f"shows {words}" for words in expected.shows if not _has_words(every, words, marks)]
    if not (said.hint or said.actions):
        lacks.append("what to do next")
    return lacks


def _has_words(text: str, words: str, marks: Mapping[str, int]) -> bool:
    for mark, number in marks.items():
        words = words.replace(f"{{{mark}}}", str(number))
    return any(one.casefold() in text.casefold() for one in words.split("|"))


def format_diagnosis(said: Said) -> str:
    return json.dumps(said.whole, indent=2, ensure_ascii=False)
