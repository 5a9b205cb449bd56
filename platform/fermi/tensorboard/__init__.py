"""What runs in the environment of a TensorBoard (docs/trackers.md#tensorboard)."""
