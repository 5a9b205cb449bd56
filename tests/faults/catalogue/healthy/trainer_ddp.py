"""The platform's own trainer."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    "",
    request={"framework": "pytorch-ddp", "hyperparameters": {"totalSteps": 120, "stepDelay": 0.1, "evalEvery": 50}},
    times=3,
)
