"""The embedded platform: web, worker, beat, watcher and broker under one foreground command.

`python -m server.up` is what `make up` runs once everything is installed, `python -m server.up down` is `make down`,
`python -m server.up dev` is `make dev`. Standard library only, so that it starts at once and works where Django does
not.

    checks      what must hold before anything is started
    pidfile     one platform per data directory; its processes
    child       a process that is restarted when it dies
    broker      the embedded Redis or Valkey
    supervisor  the order of starting and stopping
    supervision processes that hang (watchdog) or were changed (limits)
    dev         a platform that restarts when its source changes
"""
