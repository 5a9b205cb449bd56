import jax

jax.distributed.initialize()
print("process", jax.process_index(), "of", jax.process_count(), flush=True)
