"""Asks XLA for more memory than the card has."""

import json
import time

import jax
import jax.numpy as jnp

print(json.dumps({"devices": [str(one) for one in jax.devices()], "wrong": time.time()}), flush=True)
print(float(jnp.ones((400, 1024, 1024, 256), dtype=jnp.float32).sum()), flush=True)  # here
