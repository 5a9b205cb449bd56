"""Environments that are allocations, as a node's `engine` names them. Pure.

allocation        one that the platform made: the job's number, 0 before it ran; its newest run counts
job, node, user   one that a user made (`discover`): the job's number, the Slurm node, the job's user
inside            why it cannot be entered, `{"why": code, "params": {…}}`, or what was found there,
                  `{"python": "/…"}`
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fermi.jobs.spec import Node

ENVIRONMENTS_FOLDER = "slurm-environments"
COMMENT_PREFIX = "fermi-environment:"
ALLOCATION_KEY, JOB_KEY, NODE_KEY, USER_KEY = "allocation", "job", "node", "user"
OWN_PYTHON_FOLDER = ".fermi/python"
"""Folder of the environment's own interpreter in its home, into which `pip install` goes there."""


OFFER_WORD = "fermi"
"""First word of the comment by which a user offers an allocation as an environment."""


def parse_offer(comment: str) -> dict[str, str] | None:
    """Return what the comment `fermi project=nlp name=notes` says; None where the allocation is not offered."""
    words = comment.split()
    if not words or words[0] != OFFER_WORD:
        return None
    return {name: value for name, is_said, value in (word.partition("=") for word in words[1:]) if is_said}


def is_environment(node: Node) -> bool:
    """Return whether a node is an allocation, and not a node that Slurm chooses."""
    return ALLOCATION_KEY in node.engine or JOB_KEY in node.engine


def build_disk_path(node: Node, folder: str) -> str:
    """Return the folder of an environment that the platform made; empty for others. `folder`: the platform's data
    directory, as the caller sees it."""
    return f"{folder}/{ENVIRONMENTS_FOLDER}/{node.id}" if ALLOCATION_KEY in node.engine else ""


def build_order(node: Node, python: str, shell: Iterable[str]) -> dict[str, Any]:
    """Return what is known of a node inside before its attempt starts. `python`: the interpreter that the job names for
    its ranks; `shell`: the command of its step."""
    known = {
        "environment": node.name, "processes": node.processes, "python": python or get_interpreter(node),
        "shell": [*shell],
    }  # fmt: skip
    if ALLOCATION_KEY in node.engine:
        return {**known, "made": node.id}
    return {**known, "job": int(node.engine[JOB_KEY]), "host": str(node.engine.get(NODE_KEY) or node.host)}


def get_interpreter(node: Node) -> str:
    """Return the interpreter that was found inside of it; empty: none was looked for."""
    found = node.engine.get("inside")
    return str(found.get("python") or "") if isinstance(found, Mapping) else ""


def build_step_options(host: str) -> list[str]:
    """Return options of srun for a step with all that the allocation has on this node: its GPUs (a step is given those
    of its job: https://slurm.schedmd.com/gres.html), its memory (`--mem=0`), and all of its processors, for none are
    requested (`--whole` is the default) and the task is bound to none (https://slurm.schedmd.com/srun.html)."""
    return [f"--nodelist={host}", "--mem=0", "--cpu-bind=none"]
