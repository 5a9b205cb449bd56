"""What every part of training is built on: state changes, leases, placement, checkpoints of a task, wake-ups."""
