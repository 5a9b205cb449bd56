"""The worker agent (`fermi worker`): reports the state of a host's workers to the platform, and starts and ends what
the platform wants. One worker per GPU; one rank per worker.

settings.py      options and the configuration file      host_facts.py    facts of the host, its container engine, ports
state.py         its folder: one agent at a time, secrets
server.py        requests to the platform                usage.py         GPU, CPU and memory use
errors.py        errors, with texts                      runs.py          one attempt's rank on disk: spec, runner, log
agent.py         the threads                             worker.py        desired state, and steps towards it
environments.py  managed environments of this host       log_upload.py    logs to the server, by acknowledged offset
sandbox.py       whether ranks can be confined here      streams_dial.py  streams for the platform

Everything is level-triggered. A heartbeat has the actual state, its answer the desired one; the folder has what was
started. Training is detached (`fermi.runner.node`): it depends neither on the agent nor on the server.
"""
