"""ProcGuard's commands, for its former users: `python -m procguard` starts the platform, and `python -m
procguard.worker_launcher` a worker. docs/migrating-from-procguard.md describes the replacement of everything else."""
