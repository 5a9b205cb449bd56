"""Runs one node of a job inside of a dev environment: `python -m fermi.runner.inside <spec.json> -`.

Standard library only, Python 3.9 or later: it runs with the environment's own interpreter. It differs from
`fermi.runner.node` in two things: it waits for the other nodes (`barrier.py`), and its ranks give way to the user of
the environment: they are the first to be killed when memory runs out, and their processes have a lower priority. If the
container may divide its own control group, the kernel limits them to the memory that others leave.

Additional keys of the spec: `meeting`, `{"nodes": 2, "head": "10.0.0.7", "port": 29500, "patience": 1800}` (see
`Rendezvous` of `prepare.py`); `folder`: the attempt's own; `yields`: `{"oom": 300, "nice": 5}`; `fork`: ranks may be
forked, if this process has imported the training stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from fermi.runner import barrier, cgroups, node
from fermi.runner.files import RunnerPaths, read_json, try_lock
from fermi.runner.late_values import Late
from fermi.runner.memory_guard import find_limited_group
from fermi.runner.node import Node
from fermi.runner.prepare import Rendezvous, prepare_node

FREE_MEMORY_SHARE, MIN_MEMORY_SHARE = 0.05, 0.1
"""Shares of the container's memory: what is kept free for others; and a smaller limit than this for the ranks is not
set."""
MAX_OOM_SCORE = 1000
"""The highest oom_score_adj (proc(5)). Every process may raise its own."""


def run_node(spec_path: str, secrets: dict[str, str], standby: bool = False) -> None:
    """Run the node to its end, unless a runner has it or had it. `standby`: this process was forked from one that has
    imported the training stack and has a lower priority already (`fermi.runner.standby`). May raise UnwindToRankError
    (in a child)."""
    paths = RunnerPaths(spec_path)
    lock = try_lock(paths.lock)
    if lock is None or read_json(paths.status) is not None:
        return
    spec = read_json(paths.spec)
    spec["fork"] = standby and bool(spec.get("fork"))
    one = node.build_node(spec, paths, lock)
    one.stops.listen()
    one.save("starting")
    try:
        prepare_node(
            spec, read_rendezvous(spec), write_log, lambda: one.stops.early() is not None,
            {Late.FILES_DIR: os.path.join(spec["folder"], "files")},
        )  # fmt: skip
    except barrier.RendezvousError as error:
        end_with_cause(one, error.cause, error.detail, **error.about)
        return
    except OSError as error:
        end_with_cause(one, "START_FAILED", f"port {spec['meeting']['port']}: {error}")
        return
    spec["env"].update(secrets)
    spec["secrets"] = [*secrets]
    limit_rank_memory(spec.get("bounds") or {})
    yields = spec.get("yields") or {}
    lower_priority({"oom": yields.get("oom")} if standby else yields)
    one.run()


def read_rendezvous(spec: dict[str, Any]) -> Rendezvous:
    """Return the rendezvous of a spec."""
    at = spec["meeting"]
    patience = float(at.get("patience") or barrier.DEFAULT_TIMEOUT_SECONDS)
    goes_on = bool(at.get("goes_on"))
    return Rendezvous(spec["name"], spec["node_rank"], at["nodes"], at["head"], at["port"], patience, goes_on)


def lower_priority(yields: dict[str, Any]) -> None:
    """Lower the priority of this process, which ranks inherit; what is not permitted is skipped."""
    if oom := yields.get("oom"):
        with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
            wanted = min(MAX_OOM_SCORE, int(file.read()) + int(oom))
            file.seek(0)
            file.write(str(wanted))
    if nice := yields.get("nice"):
        with contextlib.suppress(OSError):
            os.nice(int(nice))


def limit_rank_memory(bounds: dict[str, Any]) -> None:
    """Limit the memory of the ranks' own control group, if one can be created in the container's (`cgroups.py`): a rank
    that takes more is killed alone, because the limit of the whole container is not reached."""
    if not bounds.get("control_group") or bounds.get("memory") or not cgroups.divide_own_group():
        return
    with contextlib.suppress(OSError, ValueError):
        if group := find_limited_group():
            left = int(group.limit * (1 - FREE_MEMORY_SHARE)) - group.used()
            if left >= group.limit * MIN_MEMORY_SHARE:
                bounds["memory"] = left


def write_log(text: str) -> None:
    print(f"fermi: {text}", file=sys.stderr, flush=True)


def end_with_cause(runner: Node, cause: str, detail: str, **about: Any) -> None:
    """Write the cause of an end without ranks to the log and the status."""
    write_log(f"gave up: {cause}: {detail}")
    runner.status["cause"] = {"code": cause, "evidence": detail, **about}
    runner.save("exited")


if __name__ == "__main__":
    node.main(sys.argv[1], json.load(sys.stdin) if sys.argv[2:] == ["-"] else {}, run_node)
