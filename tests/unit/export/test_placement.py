"""`fermi launch`: which ranks run here, from what was asked and from Slurm's variables."""

import subprocess

import pytest

from fermi.export import hostlist, sbatch
from fermi.export.placement import LaunchArguments, LaunchPlacement, find_placement
from fermi.jobs.errors import LaunchError
from fermi.jobs.rank_env import build_rank_env
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import Node
from tests.unit.export.test_scripts import NASTY, needs_shellcheck

SLURM = {
    "SLURM_JOB_ID": "4711", "SLURM_PROCID": "3", "SLURM_NTASKS": "5", "SLURM_NODEID": "1", "SLURM_LOCALID": "1",
    "SLURM_JOB_NODELIST": "gpu[03,07-08]", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}  # fmt: skip


def found(asked: LaunchArguments, env: dict[str, str] | None = None, gpus: int = 0) -> LaunchPlacement:
    return find_placement(asked, env or {}, gpus)


def test_one_machine_runs_all_ranks():
    for asked in (
        LaunchArguments(nproc=(4,)),
        LaunchArguments(world_size=4),
        LaunchArguments(mode="manual", world_size=4),
        LaunchArguments(nnodes=1, nproc=(4,)),
    ):
        seen = found(asked)
        assert seen.ranks == ((0, 0), (1, 1), (2, 2), (3, 3))
        assert (seen.world_size, seen.local_world_size, seen.members) == (4, 4, 1)
        assert seen.master_port is None
    assert len(found(LaunchArguments(), gpus=8).ranks) == 8
    assert len(found(LaunchArguments()).ranks) == 1


def test_the_document_s_table_of_two_machines_of_four():
    asked = [LaunchArguments(nnodes=2, node_rank=node, nproc=(4,), master_addr="192.168.1.100") for node in (0, 1)]
    first, second = map(found, asked)
    assert first.ranks == ((0, 0), (1, 1), (2, 2), (3, 3))
    assert second.ranks == ((4, 0), (5, 1), (6, 2), (7, 3))
    assert (second.world_size, second.node_rank, second.members) == (8, 1, 2)
    assert second.shared_env(29500) == {
        "MASTER_ADDR": "192.168.1.100", "MASTER_PORT": "29500", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4",
        "NODE_RANK": "1", "GROUP_RANK": "1", "JAX_COORDINATOR_ADDRESS": "192.168.1.100:29500",
        "GROUP_WORLD_SIZE": "2", "ROLE_NAME": "default", "ROLE_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
    }  # fmt: skip
    assert build_rank_env(*second.ranks[1]).items() >= {"RANK": "5", "LOCAL_RANK": "1", "ROLE_RANK": "5"}.items()


def test_uneven_nodes_are_numbered_by_the_rank_rule():
    counts = (2, 4, 8)
    placements = place_nodes([Node(str(n), str(n), gpu_count=count) for n, count in enumerate(counts)], "0")
    for at in placements:
        seen = found(LaunchArguments(nnodes=3, node_rank=at.node_rank, nproc=counts, master_addr="m"))
        assert [rank for rank, _ in seen.ranks] == list(at.ranks)
        assert seen.world_size == 14


def test_single_ranks_rendezvous():
    seen = found(
        LaunchArguments(mode="manual", rank=5, world_size=8, nproc=(4,), master_port=1234), {"MASTER_ADDR": "gn6"}
    )
    assert (seen.ranks, seen.node_rank, seen.local_world_size) == (((5, 1),), 1, 4)
    assert (seen.member, seen.members, seen.master_addr, seen.master_port) == (5, 8, "gn6", 1234)
    assert found(LaunchArguments(rank=5, world_size=8, local_rank=3, master_addr="a")).ranks == ((5, 3),)
    assert found(LaunchArguments(rank=0, world_size=1)).members == 1


def test_a_slurm_task_is_a_rank():
    seen = found(LaunchArguments(), SLURM)
    assert (seen.ranks, seen.world_size, seen.local_world_size, seen.node_rank) == (((3, 1),), 5, 2, 1)
    assert (seen.member, seen.members, seen.master_addr) == (3, 5, "gpu03")
    again, other = (
        found(LaunchArguments(), SLURM | {"SLURM_PROCID": "0"}),
        found(LaunchArguments(), SLURM | {"SLURM_JOB_ID": "4712"}),
    )
    assert seen.master_port == again.master_port != other.master_port
    assert found(LaunchArguments(master_port=1234), SLURM).master_port == 1234
    assert found(LaunchArguments(mode="manual", nproc=(2,)), SLURM).world_size == 2


def test_a_slurm_task_can_be_a_node():
    env = SLURM | {"SLURM_NTASKS": "3", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NNODES": "3"}
    seen = found(LaunchArguments(nproc=(4,)), env)
    assert (seen.ranks, seen.world_size, seen.member, seen.members) == (((4, 0), (5, 1), (6, 2), (7, 3)), 12, 1, 3)
    with pytest.raises(LaunchError, match="LAUNCH_SLURM_TASKS"):
        found(LaunchArguments(nproc=(4,)), SLURM | {"SLURM_NNODES": "3"})


@pytest.mark.parametrize(
    ("asked", "code", "part"),
    [
        (LaunchArguments(rank=8, world_size=8), "LAUNCH_OUT_OF_RANGE", "0 … 7"),
        (LaunchArguments(rank=-1, world_size=8), "LAUNCH_OUT_OF_RANGE", "--rank"),
        (LaunchArguments(rank=1), "LAUNCH_MISSING", "--world-size"),
        (LaunchArguments(rank=1, world_size=8), "LAUNCH_MASTER_MISSING", "--rank 1"),
        (LaunchArguments(nnodes=2, nproc=(4,), master_addr="a"), "LAUNCH_MISSING", "--node-rank"),
        (LaunchArguments(nnodes=2, node_rank=2, nproc=(4,)), "LAUNCH_OUT_OF_RANGE", "0 … 1"),
        (LaunchArguments(nnodes=2, node_rank=0, nproc=(4,)), "LAUNCH_MASTER_MISSING", "--nnodes 2"),
        (LaunchArguments(nnodes=2, node_rank=0, nproc=(1, 2, 3)), "LAUNCH_COUNTS", "1,2,3"),
        (LaunchArguments(nnodes=2, node_rank=0, nproc=(4,), world_size=2), "LAUNCH_CONTRADICTION", "8"),
        (LaunchArguments(nproc=(0,)), "LAUNCH_OUT_OF_RANGE", "--nproc-per-node"),
        (LaunchArguments(nproc=(2,), world_size=3), "LAUNCH_CONTRADICTION", "3"),
        (LaunchArguments(nproc=(2,), master_port=70_000), "LAUNCH_OUT_OF_RANGE", "--master-port"),
        (LaunchArguments(mode="slurm"), "LAUNCH_NO_SLURM", "SLURM_PROCID"),
    ],
)
def test_invalid_placements_are_named(asked, code, part):
    with pytest.raises(LaunchError) as error:
        found(asked)
    assert error.value.code == code
    assert part in str(error.value.params)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gn6", ["gn6"]),
        ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("a-1-[2]-b.example.org", ["a-1-2-b.example.org"]),
    ],
)
def test_a_hostlist_is_expanded(text, hosts):
    assert hostlist.expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", "a[", "a[1-]", "a[2-1]", "a[x]", "a,,b", "a]b", "a[1-9999999999]"])
def test_an_invalid_hostlist_is_refused(text):
    with pytest.raises(LaunchError, match="HOSTLIST_INVALID"):
        hostlist.expand_hosts(text)


def test_tasks_per_node_are_expanded():
    assert hostlist.expand_counts("2(x3),1") == [2, 2, 2, 1]
    with pytest.raises(LaunchError, match="HOSTLIST_INVALID"):
        hostlist.expand_counts("2x")


def test_a_batch_script_has_the_requested_options():
    batch = sbatch.SbatchOptions(2, 4, name="a name", partition="gpu", account="lab", qos="high", time="1-0", cpus=8)
    text = sbatch.render_script(batch, ["python", "train.py", "--name", "it's $x"])
    for line in ("job-name=\"a name\"", "nodes=2", "ntasks-per-node=4", "gpus-per-node=4", "partition=gpu",
                 "account=lab", "qos=high", "time=1-0", "cpus-per-task=8"):  # fmt: skip
        assert f"#SBATCH --{line}\n" in text
    assert 'launch --mode slurm -- \\\n  python train.py --name "it\'s \\$x"' in text
    assert "gpus" not in sbatch.render_script(sbatch.SbatchOptions(gpus=0), ["true"])
    with pytest.raises(LaunchError, match="SBATCH_VALUE"):
        sbatch.render_script(sbatch.SbatchOptions(name="a\nb"), ["true"])


@needs_shellcheck
def test_a_batch_script_passes_shellcheck(tmp_path):
    (tmp_path / "run.sh").write_text(sbatch.render_script(sbatch.SbatchOptions(), ["python", *NASTY]))
    done = subprocess.run(["shellcheck", tmp_path / "run.sh"], capture_output=True, text=True)
    assert done.stdout == ""
