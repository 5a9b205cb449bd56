"""The platform's own trainer with sharded parameters."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    "",
    request={"framework": "pytorch-fsdp", "hyperparameters": {"totalSteps": 60, "stepDelay": 0.1, "evalEvery": 30}},
    times=2,
)
