"""ProcGuard's commands, for people who come from it: `python -m procguard` starts the platform, and
`python -m procguard.worker_launcher` a worker. docs/migrating-from-procguard.md says what became of everything else."""
