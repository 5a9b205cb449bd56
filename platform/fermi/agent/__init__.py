"""The worker launcher (`fermi worker`): on each host, it tells the platform what its workers do and makes them do what
the platform wants. One worker per GPU; one rank per worker.

settings.py   what it is told: options and the configuration file      facts.py    what it finds out about the host
state.py      its folder: one agent at a time, workers' secrets        usage.py    GPU, CPU and memory use
server.py     the requests                                            errors.py   what can be wrong, in words
runs.py       one attempt's rank on disk: spec, runner, log            worker.py   desired state, and the way to it
shipping.py   logs to the server, by acknowledged offset               agent.py    the threads

Everything is level-triggered. A heartbeat carries what is, its answer what is wanted; the folder holds what was begun.
Training is detached (`fermi.runner.node`): it neither notices when the agent ends nor when the server does.
"""
