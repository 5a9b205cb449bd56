"""What Horovod refuses, warns of and renders; where Horovod is installed, its own code agrees."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.frameworks import horovod
from fermi.jobs.spec import Entrypoint, JobSpec, Late, Node, Plan, Problem, Value, resolve
from fermi.planning import plugins, validate
from tests.goldens import job

ALL = ("env-001", "env-003", "env-005")
OPTIONS = "distributedConfig.options"
HOSTS = f"{OPTIONS}.hosts"
BOUND = {Late.PYTHON: "python", Late.FILES_DIR: "/files", Late.HEAD_HOST: "gn6"}


def codes(found: list[Problem]) -> list[tuple[str, str]]:
    for problem in found:
        for language in ("zh", "en"):
            assert messages.render_text(problem.code, language, **problem.params)[0]
    return [(problem.field, problem.code) for problem in found]


def spec(*environments: str, **changes) -> JobSpec:
    return job(*(environments or ALL), framework="horovod", **changes)


def over(*gpus: int, **changes) -> JobSpec:
    nodes = tuple(Node(f"n{i}", f"n{i}", gpu_count=count, emulated=True) for i, count in enumerate(gpus))
    return JobSpec("t", "horovod", nodes, "n0", **changes)


def by_rank(plan: Plan) -> list[Mapping[str, Value]]:
    """The whole environment of each rank."""
    return [{**node.env, **process.env} for node in plan.nodes for process in node.processes]


def line(plan: Plan) -> list[str]:
    """The words of `horovodrun.sh`."""
    return shlex.split(resolve(plan.files["horovodrun.sh"], BOUND).replace("\\\n", ""))


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"options": {"hosts": "gn6"}}, HOSTS, "HOROVOD_HOSTS_INVALID"),
        ({"options": {"hosts": "gn6:2,gn7:"}}, HOSTS, "HOROVOD_HOSTS_INVALID"),
        ({"options": {"hosts": "gn6:2;gn7:4"}}, HOSTS, "HOROVOD_HOSTS_INVALID"),
        ({"options": {"hosts": "gn6:0,gn7:14"}}, HOSTS, "HOROVOD_HOSTS_INVALID"),
        ({"options": {"hosts": "fe80::1:14"}}, HOSTS, "HOROVOD_HOSTS_INVALID"),
        ({"options": {"hosts": "gn6:8,gn6:8"}}, HOSTS, "HOROVOD_HOST_TWICE"),
        ({"options": {"hosts": "gn6:2,gn7:4,gn9:4"}}, HOSTS, "HOROVOD_TOO_FEW_SLOTS"),
        ({"options": {"hosts": 14}}, HOSTS, "OPTION_INVALID"),
        ({"options": {"compression": "bf16"}}, f"{OPTIONS}.compression", "OPTION_INVALID"),
        ({"options": {"fusionThresholdMb": -1}}, f"{OPTIONS}.fusionThresholdMb", "OPTION_INVALID"),
        ({"options": {"cycleTimeMs": 0}}, f"{OPTIONS}.cycleTimeMs", "OPTION_INVALID"),
        ({"options": {"timeoutSeconds": 0}}, f"{OPTIONS}.timeoutSeconds", "OPTION_INVALID"),
        ({"options": {"autotune": 1}}, f"{OPTIONS}.autotune", "OPTION_INVALID"),
        ({"options": {"zeroStage": 2}}, f"{OPTIONS}.zeroStage", "OPTION_UNKNOWN"),
        ({"env": {"HOROVOD_CROSS_RANK": "0"}}, "env.HOROVOD_CROSS_RANK", "ENV_RESERVED"),
        ({"env": {"HOROVOD_GLOO_RENDEZVOUS_PORT": "1"}}, "env.HOROVOD_GLOO_RENDEZVOUS_PORT", "ENV_RESERVED"),
    ],
)
def test_a_broken_rule_is_named_with_its_field(changes, field, code):
    assert codes(validate.find_problems(spec(**changes))) == [(field, code)]


def test_refused_hosts_come_with_valid_ones():
    for hosts in ("gn6", "gn6:8,gn6:8", "gn6:13"):
        [problem] = validate.find_problems(spec(options={"hosts": hosts}))
        assert problem.params["nearest"] == "192.168.1.10:2,192.168.2.20:4,192.168.3.30:8"
        assert validate.find_problems(spec(options={"hosts": problem.params["nearest"]})) == []
    [problem] = validate.find_problems(spec(options={"hosts": "gn6:13"}))
    assert (problem.params["slots"], problem.params["worldSize"]) == (13, 14)


def test_another_backend_or_split_is_a_warning():
    strategy = {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}
    assert codes(plugins.get_framework("horovod").warnings(spec(backend="nccl", strategy=strategy))) == [
        ("distributedConfig.strategy", "STRATEGY_NOT_RENDERED"),
        ("distributedConfig.backend", "HOROVOD_BACKEND_BUILT_IN"),
    ]
    assert plugins.get_framework("horovod").warnings(spec(strategy={"dataParallel": 14})) == []


def test_a_node_without_an_address_for_host_slots_is_a_warning():
    nodes = (Node("a", "节点 一", ip="fe80::1", gpu_count=1), Node("b", "gn7", gpu_count=2))
    own = JobSpec("t", "horovod", nodes, "a")
    assert codes(plugins.get_framework("horovod").warnings(own)) == [(HOSTS, "HOROVOD_HOST_UNUSABLE")]
    assert horovod.plan(own).files["hostfile"] == "node-0 slots=1\ngn7 slots=2\n"
    given = replace(own, options={"hosts": "gn6:1,gn7:2"})
    assert plugins.get_framework("horovod").warnings(given) == []
    assert horovod.plan(given).files["hostfile"] == "gn6 slots=1\ngn7 slots=2\n"


def test_an_empty_strategy_means_data_parallelism_over_all_ranks():
    proposal = plugins.get_framework("horovod").propose(spec())
    assert proposal.strategy == {"dataParallel": 14}
    assert codes(list(proposal.reasons)) == [("distributedConfig.strategy", "PROPOSED_DATA_PARALLEL")]
    assert plugins.get_framework("horovod").propose(spec(strategy={"dataParallel": 14})).strategy == {}


@pytest.mark.parametrize(
    ("gpus", "cross"),
    [
        ((1, 2), "0/2 1/2 0/1"),
        ((2, 2), "0/2 0/2 1/2 1/2"),
        ((2, 4, 8), "0/3 0/3 1/3 1/3 0/2 0/2 2/3 2/3 1/2 1/2 0/1 0/1 0/1 0/1"),
        ((4, 1), "0/2 0/1 0/1 0/1 1/2"),
    ],
)
def test_uneven_nodes_have_horovods_cross_ranks(gpus, cross):
    ranks = by_rank(horovod.plan(over(*gpus)))
    assert [f"{env['HOROVOD_CROSS_RANK']}/{env['HOROVOD_CROSS_SIZE']}" for env in ranks] == cross.split()


def test_options_become_horovod_variables_and_horovodrun_flags():
    chosen = {"compression": "fp16", "fusionThresholdMb": 64, "cycleTimeMs": 3.5, "autotune": True, "timeline": True,
              "timeoutSeconds": 60}  # fmt: skip
    plan = horovod.plan(spec(options=chosen, hyperparameters={"wandbRunName": "a run"}))
    env = by_rank(plan)[13]
    assert env["HOROVOD_FUSION_THRESHOLD"] == str(64 * 2**20)
    assert env["HOROVOD_CYCLE_TIME"] == "3.5"
    assert env["HOROVOD_AUTOTUNE"] == "1"
    assert env["HOROVOD_TIMELINE"] == "/checkpoints/task-golden/horovod_timeline_1.json"
    assert env["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "60"
    assert plan.nodes[0].command[-2:] == ("--compression", "fp16")
    words = line(plan)
    assert words[:6] == ["horovodrun", "--gloo", "-np", "14", "-H", "192.168.1.10:2,192.168.2.20:4,192.168.3.30:8"]
    assert words[6:15] == [
        *("--fusion-threshold-mb", "64", "--cycle-time-ms", "3.5", "--gloo-timeout-seconds", "60", "--autotune"),
        *("--timeline-filename", "/checkpoints/task-golden/horovod_timeline_1.json"),
    ]
    assert words[15:19] == ["python", "-u", "-m", "fermi.train.train_horovod"]
    assert words[words.index("--wandb_run_name") + 1] == "a run"


def test_unset_options_are_left_to_horovod():
    env = by_rank(horovod.plan(spec()))[0]
    assert not {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_AUTOTUNE", "HOROVOD_TIMELINE"} & env.keys()


def test_a_custom_script_is_started_in_the_same_way():
    plan = horovod.plan(spec(entrypoint=Entrypoint("my train.py", ("--a b",)), options={"compression": "fp16"}))
    for node in plan.nodes:
        assert [resolve(word, BOUND) for word in node.command] == [
            "python", "-u", "/files/horovod_start.py", "my train.py", "--a b"
        ]  # fmt: skip
    assert line(plan)[-4:] == ["python", "-u", "my train.py", "--a b"]
    assert by_rank(plan)[0]["FERMI_HOROVOD_COMPRESSION"] == "fp16"


def test_horovod_is_not_loaded_before_the_fork_where_it_may_look_for_gpus():
    assert "horovod.torch" in horovod.plan(spec()).preload
    assert "horovod.torch" not in horovod.plan(spec(emulated=False)).preload


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", []])
choices = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.sampled_from(["none", "fp16"]) | anything,
        "fusionThresholdMb": st.integers(0, 4096) | anything,
        "cycleTimeMs": st.floats(0.1, 1000) | anything,
        "autotune": st.booleans() | anything,
        "timeline": st.booleans() | anything,
        "timeoutSeconds": st.integers(1, 86_400) | anything,
        "hosts": st.sampled_from(["a:40", "a:20,b:20", "a:1"]) | st.text("ab:,.019", max_size=12) | anything,
        "unknown": anything,
    },
)
nodes = st.lists(st.integers(0, 8), min_size=1, max_size=5)


@given(nodes, choices)
def test_rules_never_raise_and_a_spec_without_problems_has_a_plan_that_keeps_them(gpus, options):
    spec = over(*gpus, options=options)
    plugins.get_framework("horovod").warnings(spec)
    plugins.get_framework("horovod").propose(spec)
    if validate.find_problems(spec):
        return
    plan = horovod.plan(spec)
    ranks = by_rank(plan)
    assert [env["HOROVOD_RANK"] for env in ranks] == [str(rank) for rank in range(spec.world_size)]
    assert {env["HOROVOD_SIZE"] for env in ranks} == {str(spec.world_size)}
    names = [node.env["HOROVOD_HOSTNAME"] for node in plan.nodes]
    assert len(set(names)) == len(names)
    slots = [int(text.rpartition("=")[2]) for text in str(plan.files["hostfile"]).splitlines()]
    assert sum(slots) >= spec.world_size
    words = line(plan)
    assert words[words.index("-np") + 1] == str(spec.world_size)


@pytest.mark.skipif(not find_spec("horovod"), reason="needs Horovod: make test-frameworks")
@given(nodes)
def test_horovod_itself_assigns_the_same_ranks(gpus):
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts, parse_hosts_and_slots

    plan = horovod.plan(over(*gpus))
    ranks = by_rank(plan)
    hosts = str(ranks[0]["FERMI_HOROVOD_HOSTS"])
    parse_hosts_and_slots(hosts)  # raises what it refuses
    parse_hosts_and_slots(line(plan)[line(plan).index("-H") + 1])
    for slot, env in zip(get_host_assignments(parse_hosts(hosts), len(ranks)), ranks, strict=True):
        for name in ("hostname", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
            assert str(getattr(slot, name)) == env[f"HOROVOD_{name.upper()}"]
