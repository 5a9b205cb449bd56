"""Environments that are allocations, as a node's `engine` names them. Pure.

allocation        one that the platform made: the job's number, 0 before it ran; its newest run counts
job, node, user   one that somebody else made (`discover`): the job's number, the Slurm node, whose job it is
inside            why nobody can enter it, `{"why": code, "params": {…}}`, or what was found there, `{"python": "/…"}`
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fermi.jobs.spec import Node

FOLDER = "slurm-environments"
COMMENT = "fermi-environment:"
ALLOCATION, JOB, NODE, USER = "allocation", "job", "node", "user"
OWN_PYTHON = ".fermi/python"
"""In an environment's home: the folder of its own interpreter, into which `pip install` goes there."""


MARK = "fermi"
"""The first word of the comment by which somebody offers an allocation of theirs as an environment."""


def marks(comment: str) -> dict[str, str] | None:
    """Returns what the comment `fermi project=nlp name=notes` says; None where the allocation is not offered."""
    words = comment.split()
    if not words or words[0] != MARK:
        return None
    return {name: value for name, is_said, value in (word.partition("=") for word in words[1:]) if is_said}


def is_environment(node: Node) -> bool:
    """Whether it is an allocation, and not a place in the queue."""
    return ALLOCATION in node.engine or JOB in node.engine


def disk_of(node: Node, folder: str) -> str:
    """Returns the folder of an environment that the platform made; empty for others. `folder`: the platform's data
    directory, as who asks has it."""
    return f"{folder}/{FOLDER}/{node.id}" if ALLOCATION in node.engine else ""


def order(node: Node, python: str, shell: Iterable[str]) -> dict[str, Any]:
    """Returns what is known of a node inside before its attempt begins. `python`: the interpreter that the job names
    for its ranks; `shell`: what its step runs."""
    known = {
        "environment": node.name, "processes": node.processes, "python": python or interpreter(node),
        "shell": [*shell],
    }  # fmt: skip
    if ALLOCATION in node.engine:
        return {**known, "made": node.id}
    return {**known, "job": int(node.engine[JOB]), "host": str(node.engine.get(NODE) or node.host)}


def interpreter(node: Node) -> str:
    """Returns that which was found inside of it; empty: none was looked for."""
    found = node.engine.get("inside")
    return str(found.get("python") or "") if isinstance(found, Mapping) else ""


def options(host: str) -> list[str]:
    """Returns options of srun for a step with all that the allocation has on this node: its GPUs (a step is given those
    of its job: https://slurm.schedmd.com/gres.html), its memory (`--mem=0`), and all of its processors, for none are
    asked for (`--whole` is the default) and the task is bound to none (https://slurm.schedmd.com/srun.html)."""
    return [f"--nodelist={host}", "--mem=0", "--cpu-bind=none"]
