"""All commands, one line each. Modules are imported on use. Summaries are SUMMARY_… in
`messages/<language>/cli.toml`."""

from typing import NamedTuple


class Entry(NamedTuple):
    """Module in `commands`, and the command's name in it."""

    module: str
    name: str


COMMANDS = {
    "login": Entry("account", "login"),
    "login-link": Entry("login_link", "login_link"),
    "doctor": Entry("doctor", "doctor"),
    "whoami": Entry("account", "whoami"),
    "version": Entry("account", "version"),
    "envs": Entry("inventory", "envs"),
    "environments": Entry("environments", "environments"),
    "open": Entry("access", "open_door"),
    "shell": Entry("access", "shell"),
    "run": Entry("access", "run"),
    "proxy": Entry("ssh", "proxy"),
    "ssh-config": Entry("ssh", "ssh_config"),
    "clusters": Entry("clusters", "clusters"),
    "workers": Entry("workers", "workers"),
    "groups": Entry("workers", "groups"),
    "secrets": Entry("secrets", "secrets"),
    "limits": Entry("quotas", "limits"),
    "reservations": Entry("quotas", "reservations"),
    "rules": Entry("rules", "rules"),
    "notices": Entry("notices", "notices"),
    "channels": Entry("notices", "channels"),
    "notice-rules": Entry("notices", "notice_rules"),
    "zones": Entry("inventory", "zones"),
    "datasets": Entry("inventory", "datasets"),
    "models": Entry("inventory", "models"),
    "frameworks": Entry("inventory", "frameworks"),
    "templates": Entry("templates", "templates"),
    "recommend": Entry("recommend", "recommend"),
    "preflight": Entry("preflight", "preflight"),
    "drill": Entry("drill", "drill"),
    "scaling": Entry("scaling", "scaling"),
    "preview": Entry("submit", "preview"),
    "submit": Entry("submit", "submit"),
    "list": Entry("tasks", "list_tasks"),
    "get": Entry("tasks", "get"),
    "why": Entry("why", "why"),
    "logs": Entry("task_output", "logs"),
    "metrics": Entry("task_output", "metrics"),
    "telemetry": Entry("telemetry", "telemetry"),
    "events": Entry("task_output", "events"),
    "checkpoints": Entry("task_output", "checkpoints"),
    "outputs": Entry("files", "outputs"),
    "files": Entry("files", "files"),
    "stop": Entry("tasks", "stop"),
    "grow": Entry("tasks", "grow"),
    "usage": Entry("costs", "usage"),
    "prices": Entry("costs", "prices"),
    "pause": Entry("queue", "pause"),
    "resume": Entry("queue", "resume"),
    "queue": Entry("queue", "queue"),
    "retry": Entry("tasks", "retry"),
    "restart": Entry("why", "restart"),
    "clone": Entry("tasks", "clone"),
    "code": Entry("code", "code"),
    "worker": Entry("worker", "worker"),
    "scripts": Entry("scripts", "scripts"),
    "render": Entry("scripts", "render"),
    "launch": Entry("launch", "launch"),
    "quickstart": Entry("quickstart", "quickstart"),
    "delete": Entry("tasks", "delete"),
}


WITHIN = {
    "environments": (
        "show", "make", "start", "stop", "restart", "keep", "resize", "clone", "delete", "logs", "memory", "packages",
        "level", "warm", "templates",
    ),
}  # fmt: skip
"""Subcommands."""


def summary(name: str) -> str:
    """Return the code of the command's summary."""
    return f"SUMMARY_{name.upper().replace('-', '_').replace(' ', '_')}"
