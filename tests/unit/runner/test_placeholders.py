"""Placeholders in arguments and variables: what stands for what, and what stays as it is."""

import pytest

from fermi.runner import placeholders

ENV = {
    "RANK": "3", "LOCAL_RANK": "1", "NODE_RANK": "2", "WORLD_SIZE": "8", "FERMI_CHECKPOINT_DIR": "/c/{rank}",
    "FERMI_RESUME_FROM": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--out={checkpoint_dir}/{rank}", "--out=/c/{rank}/3"),
        ("{node_rank}:{local_rank}/{world_size}", "2:1/8"),
        ("{resume_from}", ""),
        ("{{rank}} {{{rank}}}", "{rank} {{rank}}"),
        ('{"rank": {"a": 1}}', '{"rank": {"a": 1}}'),
        ("{epoch}-{rank:02d}-{}-{ rank }", "{epoch}-{rank:02d}-{}-{ rank }"),
        ("{output_dir}", "{output_dir}"),  # of which it knows nothing
    ],
)
def test_each_placeholder_is_replaced_by_the_ranks_variable(text: str, filled: str) -> None:
    assert placeholders.fill_text(text, ENV) == filled


def test_secrets_and_platform_variables_are_not_expanded() -> None:
    given = {**ENV, "OUT": "{rank}.log", "KEY": "{rank}", "FERMI_HYPERPARAMETERS": '{"a": "{rank}"}'}
    assert placeholders.fill_env(given, ["KEY"]) == {**given, "OUT": "3.log"}
