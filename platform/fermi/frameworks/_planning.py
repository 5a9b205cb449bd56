"""The part of a plan that most frameworks share: one process per GPU, placed by the rank rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fermi.jobs import elastic, launchers
from fermi.jobs import rank_env as environment
from fermi.jobs.ranks import Placement, place_nodes
from fermi.jobs.spec import JobSpec, NodePlan, Plan, Problem, Process, Proposal, Value

RankEnv = Callable[[Placement, int], Mapping[str, Value]]
NodeEnv = Callable[[Placement], Mapping[str, Value]]


def build_plan(
    spec: JobSpec,
    command: tuple[Value, ...],
    *,
    files: Mapping[str, Value],
    preload: Sequence[str],
    node_env: NodeEnv = lambda _: {},
    rank_env: RankEnv = lambda _, __: {},
) -> Plan:
    """Return the plan of one process per GPU, or of one per node that starts the others. `node_env(placement)` and
    `rank_env(placement, local_rank)` add the framework's own variables; a variable that the user set wins over the
    former, and there is none of the latter where the platform does not start the rank."""
    shared, divided = environment.build_job_env(spec), elastic.build_rank_env(spec)
    return Plan(
        world_size=spec.world_size,
        nodes=tuple(
            _plan_launcher(spec, shared, at, command, node_env)
            if spec.starts_ranks
            else _plan_node(shared, at, command, node_env, _add_batch_division(divided, rank_env))
            for at in place_nodes(spec.nodes, spec.master)
        ),
        files={**files, **(launchers.build_launcher_files(spec) if spec.starts_ranks else {})},
        master_port=spec.master_port,
        preload=tuple(preload),
        grace_seconds=spec.grace_seconds,
    )


def propose_data_parallel(spec: JobSpec) -> Proposal:
    """Return data parallelism over all ranks as the proposal for an empty strategy."""
    if spec.strategy:
        return Proposal()
    reason = Problem("distributedConfig.strategy", "PROPOSED_DATA_PARALLEL", {"worldSize": spec.world_size})
    return Proposal({"dataParallel": spec.world_size}, {}, (reason,))


def _add_batch_division(divided: Mapping[int, Mapping[str, str]], rank_env: RankEnv) -> RankEnv:
    """Return the rank's variables and those of its part of the batch, where that can change."""
    return lambda at, local: {**rank_env(at, local), **divided.get(at.first_rank + local, {})}


def _plan_node(
    shared: Mapping[str, Value], at: Placement, command: tuple[Value, ...], node_env: NodeEnv, rank_env: RankEnv
) -> NodePlan:
    return NodePlan(
        node=at.node,
        node_rank=at.node_rank,
        command=command,
        env={**node_env(at), **environment.build_node_env(shared, at)},
        processes=tuple(
            Process(
                rank=rank,
                local_rank=local,
                device=local if at.node.has_cuda else None,
                env={**rank_env(at, local), **environment.build_rank_env(at.first_rank + local, local)},
            )
            for local, rank in enumerate(at.ranks)
        ),
    )


def _plan_launcher(
    spec: JobSpec, shared: Mapping[str, Value], at: Placement, command: tuple[Value, ...], node_env: NodeEnv
) -> NodePlan:
    """Return the plan of a node whose command starts the ranks itself: they have no variables of their own."""
    made = _plan_node(shared, at, command, node_env, lambda _, __: {})
    processes = tuple(replace(process, env={}) for process in made.processes)
    return replace(made, env=launchers.build_launcher_env(spec, at, made.env), processes=processes)
