"""Prints which devices JAX has, and computes on them."""

import json
import os
import time

BEGAN = time.time()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def main() -> None:
    devices = jax.devices()
    value = float(jax.jit(lambda one: (one @ one).sum())(jnp.ones((256, 256))))
    device = devices[0]
    names = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK")
    told = {
        "devices": [str(one) for one in devices],
        "platform": device.platform,
        "kind": device.device_kind,
        "value": value,
        "memory": device.memory_stats(),
        "env": {name: text for name, text in os.environ.items() if name.startswith(("JAX", "XLA")) or name in names},
        "pid": os.getpid(),
        "seconds": time.time() - BEGAN,
    }
    print(json.dumps(told, default=str), flush=True)


if __name__ == "__main__":
    main()
