"""The platform's own trainer on DeepSpeed."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    "",
    request={"framework": "deepspeed", "hyperparameters": {"totalSteps": 40, "stepDelay": 0.1, "evalEvery": 20}},
    times=2,
)
