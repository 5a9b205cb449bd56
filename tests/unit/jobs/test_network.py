"""NCCL's and gloo's variables: what is known of each node, the weakest for what all share, and the user's word last."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.jobs.spec import Plan, Value
from fermi.planning import plugins, summary
from tests.goldens import ENVIRONMENTS, job

FAST = {"interface": "eth0", "infiniband": ["mlx5_0", "mlx5_1:1"]}
NCCL = ("NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_DEBUG", "TORCH_NCCL_ASYNC_ERROR_HANDLING")


def plan(framework: str = "pytorch-ddp", **changes: Any) -> Plan:
    spec = job("env-001", "env-003", framework=framework, **{"emulated": False, **changes})
    return plugins.get_framework(framework).plan(spec)


def variables(plan: Plan, name: str) -> list[Value | None]:
    """By node rank."""
    return [node.env.get(name) for node in plan.nodes]


@pytest.mark.parametrize("framework", sorted(plugins.FRAMEWORKS))
def test_each_node_uses_the_interface_of_its_address(framework: str) -> None:
    made = plan(framework, network={"env-001": FAST, "env-003": {"interface": "bond1"}})
    assert variables(made, "NCCL_SOCKET_IFNAME") == ["=eth0", "=bond1"]
    assert variables(made, "GLOO_SOCKET_IFNAME") == ["eth0", "bond1"]


def test_an_unknown_interface_is_not_guessed() -> None:
    made = plan(network={"env-003": {"interface": "bond1"}})
    assert variables(made, "NCCL_SOCKET_IFNAME") == [None, "=bond1"]
    assert variables(made, "GLOO_SOCKET_IFNAME") == [None, "bond1"]


@pytest.mark.parametrize(
    ("first", "second", "disabled", "devices"),
    [
        (["mlx5_0"], ["mlx5_0", "mlx5_1:1"], "0", ["=mlx5_0", "=mlx5_0,mlx5_1:1"]),
        (["mlx5_0"], [], "1", [None, None]),
        (["mlx5_0"], None, "1", [None, None]),
        ([], None, "1", [None, None]),
        (None, None, None, [None, None]),
    ],
)
def test_infiniband_is_used_only_where_every_node_has_it(
    first: Any, second: Any, disabled: str | None, devices: list[str | None]
) -> None:
    facts = {"env-001": first, "env-003": second}
    known = {key: {"infiniband": value} for key, value in facts.items() if value is not None}
    made = plan(network=known)
    assert variables(made, "NCCL_IB_DISABLE") == [disabled] * 2
    assert variables(made, "NCCL_IB_HCA") == devices


def test_unused_infiniband_is_reported() -> None:
    from dataclasses import replace

    nodes = [replace(ENVIRONMENTS["env-001"], network=FAST), ENVIRONMENTS["env-003"]]
    [warning] = [found for found in summary.find_warnings(nodes) if found.code == "INFINIBAND_NOT_EVERYWHERE"]
    for lang in messages.LANGUAGES:
        text = messages.render_text(warning.code, lang, **warning.params)[0]
        assert "pytorch-dev-env" in text
        assert "llm-training-env" in text
    both = [replace(node, network=FAST) for node in nodes]
    assert "INFINIBAND_NOT_EVERYWHERE" not in [found.code for found in summary.find_warnings(both)]


def test_cpu_jobs_need_no_nccl_variables() -> None:
    made = plan(emulated=True, network={"env-001": FAST, "env-003": FAST})
    assert {name for node in made.nodes for name in node.env if name in NCCL} == set()
    assert variables(made, "GLOO_SOCKET_IFNAME") == ["eth0", "eth0"]


def test_nccl_logs_warnings_and_torch_ranks_time_out() -> None:
    assert variables(plan(), "NCCL_DEBUG") == ["WARN", "WARN"]
    for framework, handling in (("pytorch-ddp", "3"), ("pytorch-fsdp", "3"), ("deepspeed", "3"), ("jax", None)):
        assert variables(plan(framework), "TORCH_NCCL_ASYNC_ERROR_HANDLING") == [handling, handling]


def test_torch_ranks_have_torchruns_marker() -> None:
    """Lightning 2.6 looks for this variable, and otherwise asks Slurm's or starts MPI."""
    for framework in ("pytorch-ddp", "pytorch-fsdp", "deepspeed", "jax"):
        found = variables(plan(framework), "TORCHELASTIC_RUN_ID")
        assert len(found) == 2
        assert all(found) == (framework != "jax")


def test_ranks_have_torchruns_variables(tmp_path: Path) -> None:
    """All but what torchrun's agent uses itself: a store in its own process, a file for errors, its signals."""
    agents = {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
    script = tmp_path / "env.py"
    script.write_text("import json, os; print(json.dumps(dict(os.environ)))")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", str(script)]
    bare = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=bare)
    theirs = json.loads(done.stdout)
    node = plan(attempt=3, max_restarts=5).nodes[1]
    ours = {**node.env, **node.processes[0].env}
    assert set(theirs) - set(bare) - agents <= {*ours, "LC_CTYPE", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}
    assert {name: ours[name] for name in ("GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE")} == {
        "GROUP_WORLD_SIZE": "2", "ROLE_NAME": theirs["ROLE_NAME"], "ROLE_RANK": ours["RANK"],
        "ROLE_WORLD_SIZE": ours["WORLD_SIZE"],
    }  # fmt: skip
    assert (ours["TORCHELASTIC_RESTART_COUNT"], ours["TORCHELASTIC_MAX_RESTARTS"]) == ("2", "5")


def test_user_variables_win() -> None:
    env = dict.fromkeys((*NCCL, "GLOO_SOCKET_IFNAME"), "mine")
    made = plan(env=env, network={"env-001": FAST, "env-003": FAST})
    for name in env:
        assert variables(made, name) == ["mine", "mine"]


@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp", "deepspeed"])
def test_a_timeout_reaches_the_trainer_and_custom_scripts(framework: str) -> None:
    made = plan(framework, options={"timeoutSeconds": 90})
    assert variables(made, "FERMI_TIMEOUT_SECONDS") == ["90", "90"]
    minutes = "2" if framework == "deepspeed" else None
    assert variables(made, "DEEPSPEED_TIMEOUT") == [minutes, minutes]
    assert variables(plan(framework), "FERMI_TIMEOUT_SECONDS") == [None, None]


def test_a_local_job_uses_loopback(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from server import host_facts

    monkeypatch.setattr(host_facts.socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    down = tmp_path / "infiniband" / "mlx5_1" / "ports" / "1"
    down.mkdir(parents=True)
    (down / "state").write_text("1: DOWN\n")
    monkeypatch.setattr(host_facts, "_SYS", tmp_path)
    assert host_facts.collect_facts()["network"] == {"interface": "lo", "infiniband": ["mlx5_0"]}
    monkeypatch.setattr(host_facts, "_SYS", tmp_path / "no")
    assert host_facts.collect_facts()["network"] == {"interface": "lo"}


def test_inside_environments_only_devices_of_the_container_count() -> None:
    from dataclasses import replace

    from fermi.jobs import network
    from fermi.jobs.spec import RunLocation

    seen = replace(
        ENVIRONMENTS["env-001"], engine={"inside": {"rdma": ["mlx5_3"]}}, way=RunLocation(True, "WAY_INSIDE_RUNS")
    )
    assert network.list_rdma_devices(seen) == ["mlx5_3"]
    assert network.list_rdma_devices(replace(seen, network={"infiniband": ["mlx5_0"]})) == ["mlx5_0"], (
        "somebody stated it"
    )
    assert network.list_rdma_devices(replace(seen, way=RunLocation(False, "WAY_BESIDE_ASKED"))) is None, (
        "another container"
    )
    without = replace(seen, engine={"inside": {"rdma": []}})
    assert network.build_job_env([seen, seen], "nccl")["NCCL_IB_DISABLE"] == "0"
    assert network.build_node_env(seen, "nccl", infiniband=True)["NCCL_IB_HCA"] == "=mlx5_3"
    assert network.build_job_env([seen, without], "nccl")["NCCL_IB_DISABLE"] == "1", "all or none"
    assert "NCCL_IB_DISABLE" not in network.build_job_env([replace(seen, engine={})] * 2, "nccl")


def test_only_usable_active_devices_of_a_survey_count() -> None:
    from fermi.engines.kubernetes.survey import _parse_facts

    rdma = [
        {"device": "mlx5_0", "state": "ACTIVE", "usable": True},
        {"device": "mlx5_1", "state": "ACTIVE", "usable": False},
        {"device": "mlx5_2", "state": "DOWN", "usable": True},
        {"device": "mlx5_3,=x", "state": "ACTIVE", "usable": True},
        "mlx5_4",
    ]
    found = _parse_facts({"python": "/usr/bin/python3", "container": {"rdma": rdma}})
    assert found["rdma"] == ["mlx5_0"]
    assert "rdma" not in _parse_facts({"python": "/usr/bin/python3", "container": {}})
