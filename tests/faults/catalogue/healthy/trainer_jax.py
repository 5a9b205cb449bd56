"""The platform's own trainer on JAX."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    "",
    request={"framework": "jax", "hyperparameters": {"totalSteps": 40, "evalEvery": 20}},
    times=2,
)
