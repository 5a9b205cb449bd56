"""Placeholders in the arguments and variables of a task, which no shell reads: each rank gets its own values.

    --out={output_dir}/rank-{rank}    is  --out=/srv/fermi/outputs/task-x/rank-3
    --name={{rank}}                   is  --name={rank}
    --dist-url={dist_url}             is  --dist-url=tcp://10.0.0.1:29500
    --load={resume_folder}            is  --load=/srv/fermi/checkpoints/task-x, of …/task-x/global_step100
    --model={after.checkpoint}        is  --model=/srv/fermi/checkpoints/task-y/step-100, of the task that came before

Any other text in braces stays unchanged, and so does a placeholder for which a rank has no value. Standard library
only, Python 3.9 or later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

AFTER_CHECKPOINT_VARIABLE, AFTER_OUTPUTS_VARIABLE = "FERMI_AFTER_CHECKPOINT", "FERMI_AFTER_OUTPUTS"
"""What a task that came after another one gets of that."""
VARIABLES = {
    "checkpoint_dir": "FERMI_CHECKPOINT_DIR",
    "output_dir": "FERMI_OUTPUT_DIR",
    "resume_from": "FERMI_RESUME_FROM",
    "resume_step": "FERMI_RESUME_STEP",
    "after.checkpoint": AFTER_CHECKPOINT_VARIABLE,
    "after.outputs": AFTER_OUTPUTS_VARIABLE,
    "rank": "RANK",
    "local_rank": "LOCAL_RANK",
    "node_rank": "NODE_RANK",
    "world_size": "WORLD_SIZE",
    "nnodes": "GROUP_WORLD_SIZE",
    "nproc_per_node": "LOCAL_WORLD_SIZE",
    "master": "MASTER_ADDR",
    "port": "MASTER_PORT",
    "hostfile": "FERMI_HOSTFILE",
    "accelerate_config": "FERMI_ACCELERATE_CONFIG",
}
"""The variable of a rank whose value each placeholder stands for."""
WORLD_SIZE_VARIABLE = "FERMI_WORLD_SIZE"
LAUNCHER_VARIABLES = {"world_size": WORLD_SIZE_VARIABLE, "nnodes": "NNODES", "nproc_per_node": "NPROC_PER_NODE"}
"""The variables of a command that starts the ranks of its node itself, and has none of a rank."""
JOINED = {"dist_url": "tcp://{master}:{port}"}
"""Placeholders that stand for several others."""
PARTS = {"resume_folder": 0, "resume_name": 2}
"""Placeholders that stand for a part of `resume_from`: its folder, and its name there."""
_NAMES = "|".join(map(re.escape, (*VARIABLES, *JOINED, *PARTS)))
_TOKEN = re.compile(rf"\{{\{{({_NAMES})\}}\}}|\{{({_NAMES})\}}")
OWN_PREFIX = "FERMI_"
"""The prefix of the platform's own variables, which may have braces and are left unchanged."""


def fill_text(text: str, env: Mapping[str, str]) -> str:
    """Return `text` with the values that `env`, of one rank, has for its placeholders."""

    def value(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return f"{{{escaped}}}"
        if name in JOINED:
            joined = fill_text(JOINED[name], env)
            return match[0] if "{" in joined else joined
        if name in PARTS:
            path = env.get(VARIABLES["resume_from"])
            return match[0] if path is None else path.rstrip("/").rpartition("/")[PARTS[name]]
        unknown = env.get(LAUNCHER_VARIABLES.get(name, ""), match[0])
        return env.get(VARIABLES[name], unknown)

    return _TOKEN.sub(value, text) if "{" in text else text


def fill_env(env: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """Return the variables of a rank with their placeholders filled. Values of `secrets` are never changed."""
    kept = {*secrets, *VARIABLES.values()}
    return {
        name: value if name in kept or name.startswith(OWN_PREFIX) else fill_text(value, env)
        for name, value in env.items()
    }
