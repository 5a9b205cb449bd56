"""Placeholders in arguments and variables: what stands for what, and what stays as it is."""

import pytest

from fermi.runner import placeholders

ENV = {
    "RANK": "3", "LOCAL_RANK": "1", "NODE_RANK": "2", "WORLD_SIZE": "8", "FERMI_CHECKPOINT_DIR": "/c/{rank}",
    "FERMI_RESUME_FROM": "", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "GROUP_WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--out={checkpoint_dir}/{rank}", "--out=/c/{rank}/3"),
        ("{node_rank}:{local_rank}/{world_size}", "2:1/8"),
        ("{resume_from}", ""),
        ("{master}:{port} {nnodes} {nproc_per_node}", "10.0.0.1:29500 4 2"),
        ("--dist-url={dist_url} {{dist_url}}", "--dist-url=tcp://10.0.0.1:29500 {dist_url}"),
        ("{{rank}} {{{rank}}}", "{rank} {{rank}}"),
        ('{"rank": {"a": 1}}', '{"rank": {"a": 1}}'),
        ("{epoch}-{rank:02d}-{}-{ rank }", "{epoch}-{rank:02d}-{}-{ rank }"),
        ("{output_dir}", "{output_dir}"),  # of which it knows nothing
    ],
)
def test_each_placeholder_is_replaced_by_the_ranks_variable(text: str, filled: str) -> None:
    assert placeholders.fill_text(text, ENV) == filled


def test_an_address_of_which_a_part_is_not_known_stays_a_placeholder() -> None:
    assert placeholders.fill_text("{dist_url}", {"MASTER_ADDR": "10.0.0.1"}) == "{dist_url}"


def test_a_command_that_starts_ranks_itself_has_the_counts_as_well() -> None:
    env = {"NNODES": "2", "NPROC_PER_NODE": "8", "FERMI_WORLD_SIZE": "16", "NODE_RANK": "1"}
    assert placeholders.fill_text("{nnodes} {nproc_per_node} {world_size} {node_rank} {rank}", env) == "2 8 16 1 {rank}"


def test_secrets_and_platform_variables_are_not_expanded() -> None:
    given = {**ENV, "OUT": "{rank}.log", "KEY": "{rank}", "FERMI_HYPERPARAMETERS": '{"a": "{rank}"}'}
    assert placeholders.fill_env(given, ["KEY"]) == {**given, "OUT": "3.log"}
