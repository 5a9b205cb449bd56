"""What looks like a key."""

import pytest

from fermi.jobs.credentials import MASK, looks_secret, redact_secrets


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_API_KEY", "anything"), ("HF_TOKEN", "x-y-z-w"), ("DB_PASSWORD", "hunter2"), ("MY_SECRET", "sesame"),
        ("AWS_SECRET_ACCESS_KEY", "abcdef"), ("A", "ghp_0123456789abcdefghij0123"), ("A", "AKIAABCDEFGHIJKLMNOP"),
        ("A", "0f6b2c41d97e8a35c4b1f09e7d62a8539be41c70"), ("URL", "postgresql://me:hunter2@db:5432/x"),
        ("A", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
    ],
)  # fmt: skip
def test_keys_are_recognized(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_DEBUG", "INFO"), ("TOKENIZERS_PARALLELISM", "false"), ("MAX_TOKENS", "4096"), ("NUM_TOKEN", "1024"),
        ("HF_TOKEN_PATH", "/run/token"), ("GIT_COMMIT", "0f6b2c41d97e8a35c4b1f09e7d62a8539be41c70"), ("HF_TOKEN", ""),
        ("URL", "https://example.org/path"), ("LIST", "a" * 64), ("PYTHONPATH", "/a/long/path/with/1/number/in/it"),
    ],
)  # fmt: skip
def test_ordinary_values_are_not_recognized_as_keys(name: str, value: str) -> None:
    assert not looks_secret(name, value)


def test_a_value_is_masked_everywhere() -> None:
    sent = [{"env": {"K": "sesame-1"}, "text": ["export K=sesame-1", 7, None]}]
    assert redact_secrets(sent, {"API_KEY": "sesame-1"}) == [
        {"env": {"K": MASK}, "text": [f"export K={MASK}", 7, None]}
    ]
