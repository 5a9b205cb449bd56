"""Errors of Slurm by number, and the codes that the platform has for them."""

import re

from fermi.jobs.errors import BackendError

UNKNOWN_JOB_ERRORS = (2017, 2021)  # ESLURM_INVALID_JOB_ID, ESLURM_ALREADY_DONE
ERROR_CODES = {2000: "SLURM_PARTITION_INVALID", 2045: "SLURM_ACCOUNT_INVALID", 2066: "SLURM_QOS_INVALID",
            2018: "SLURM_NODE_INVALID"}  # fmt: skip
ERROR_TEXTS = {
    "invalid partition": 2000, "invalid account": 2045, "invalid qos": 2066, "invalid node name": 2018,
    "invalid job id": 2017, "already completing or completed": 2021, "already finished": 2021,
}  # fmt: skip
"""Texts of the commands, which print no number."""
ENDED_PATTERN = re.compile(r"(?i)already completed|completing|invalid job id|expired|revoked")
"""What srun prints about a job that is over."""


class SlurmRejectedError(BackendError):
    """Slurm refused a request. `number`: Slurm's own error."""

    number = 0


def build_rejection(number: int, why: str) -> SlurmRejectedError:
    """Return the error of a refused request. It is permanent, unless Slurm is only busy."""
    if not number:
        number = next((known for text, known in ERROR_TEXTS.items() if text in why.lower()), 0)
    busy = any(word in why.lower() for word in ("temporarily", "try again", "resource limit", "submission limit"))
    refused = SlurmRejectedError(ERROR_CODES.get(number, "ENGINE_REJECTED"), permanent=not busy, why=why)
    refused.number = number
    return refused
