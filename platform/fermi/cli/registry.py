"""All commands, one line each. Modules are imported on use. Summaries are the texts SUMMARY_…, beside the module or in
`messages/<language>/cli.toml`."""

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """Module in `commands`, and the command's name in it. `example`: a whole command line, for `--help` and
    docs/cli.md; a command without one has its examples in the text of that page."""

    module: str
    name: str
    example: str = ""


COMMANDS = {
    "login": CommandEntry("account", "login"),
    "logout": CommandEntry("account", "logout"),
    "login-link": CommandEntry("login_link", "login_link", "fermi login-link --data /srv/fermi"),
    "doctor": CommandEntry("doctor", "doctor", "fermi doctor isolation --data /srv/fermi"),
    "whoami": CommandEntry("account", "whoami"),
    "version": CommandEntry("account", "version"),
    "tokens": CommandEntry("tokens", "tokens", "fermi tokens create ci --scope tasks:write --days 30"),
    "service-accounts": CommandEntry("tokens", "service_accounts", "fermi service-accounts create ci --role member"),
    "exchange": CommandEntry("exchange", "exchange", "fermi exchange ci@project-3f2a"),
    "exchange-rules": CommandEntry("exchange_rules", "exchange_rules", "fermi exchange-rules create rule.yaml"),
    "identity": CommandEntry("identity", "identity", "fermi identity disable company"),
    "sessions": CommandEntry("identity", "sessions", "fermi sessions end --all"),
    "envs": CommandEntry("inventory", "envs"),
    "environments": CommandEntry("environments", "environments"),
    "open": CommandEntry("access", "open_door"),
    "shell": CommandEntry("access", "shell"),
    "run": CommandEntry("access", "run"),
    "proxy": CommandEntry("ssh", "proxy"),
    "ssh-config": CommandEntry("ssh", "ssh_config"),
    "clusters": CommandEntry("clusters", "clusters"),
    "workers": CommandEntry("workers", "workers"),
    "groups": CommandEntry("workers", "groups"),
    "secrets": CommandEntry("secrets", "secrets"),
    "audit": CommandEntry("audit", "audit", "fermi audit --actor alice --since 7d"),
    "role-rules": CommandEntry("role_rules", "role_rules", "fermi role-rules apply rule.yaml"),
    "limits": CommandEntry("quotas", "limits"),
    "reservations": CommandEntry("quotas", "reservations"),
    "rules": CommandEntry("rules", "rules"),
    "notices": CommandEntry("notices", "notices"),
    "channels": CommandEntry("notices", "channels"),
    "notice-rules": CommandEntry("notices", "notice_rules"),
    "zones": CommandEntry("inventory", "zones"),
    "datasets": CommandEntry("inventory", "datasets"),
    "models": CommandEntry("inventory", "models"),
    "frameworks": CommandEntry("inventory", "frameworks"),
    "templates": CommandEntry("templates", "templates"),
    "template": CommandEntry("repetition", "template"),
    "schedule": CommandEntry("repetition", "schedule"),
    "recommend": CommandEntry("recommend", "recommend"),
    "preflight": CommandEntry("preflight", "preflight"),
    "drill": CommandEntry("drill", "drill"),
    "sweep": CommandEntry("sweep", "sweep", "fermi sweep rates.yaml --request request.yaml --trials 20 --wait"),
    "scaling": CommandEntry("scaling", "scaling"),
    "preview": CommandEntry("submit", "preview"),
    "submit": CommandEntry("submit", "submit"),
    "list": CommandEntry("tasks", "list_tasks"),
    "runs": CommandEntry("runs", "runs"),
    "get": CommandEntry("tasks", "get"),
    "why": CommandEntry("why", "why"),
    "diff": CommandEntry("diff", "diff", "fermi diff task-ga8rvfce3c task-k2m4x7w9qa"),
    "tensorboard": CommandEntry("tensorboard", "tensorboard", "fermi tensorboard task-ga8rvfce3c task-k2m4x7w9qa"),
    "logs": CommandEntry("task_output", "logs"),
    "metrics": CommandEntry("task_output", "metrics"),
    "log-patterns": CommandEntry("log_patterns", "log_patterns"),
    "telemetry": CommandEntry("telemetry", "telemetry"),
    "events": CommandEntry("task_output", "events"),
    "checkpoints": CommandEntry("task_output", "checkpoints"),
    "tag": CommandEntry("run_records", "change_tags", "fermi tag task-ga8rvfce3c +baseline -draft"),
    "note": CommandEntry("run_records", "change_note", "fermi note task-ga8rvfce3c --edit"),
    "archive": CommandEntry("run_records", "archive_tasks", "fermi archive task-ga8rvfce3c"),
    "outputs": CommandEntry("files", "outputs"),
    "files": CommandEntry("files", "files"),
    "export": CommandEntry("export", "export"),
    "cache": CommandEntry("files", "cache"),
    "stop": CommandEntry("tasks", "stop"),
    "grow": CommandEntry("tasks", "grow"),
    "usage": CommandEntry("costs", "usage"),
    "prices": CommandEntry("costs", "prices"),
    "pause": CommandEntry("queue", "pause"),
    "resume": CommandEntry("queue", "resume"),
    "queue": CommandEntry("queue", "queue"),
    "retry": CommandEntry("tasks", "retry"),
    "restart": CommandEntry("why", "restart"),
    "clone": CommandEntry("tasks", "clone"),
    "code": CommandEntry("code", "code"),
    "agents": CommandEntry("agents", "agents", "fermi agents create coder --gpu-hours 50 --days 30 --mcp"),
    "proposals": CommandEntry("proposals", "proposals", "fermi proposals approve proposal-7m2k"),
    "mcp": CommandEntry("mcp", "serve_mcp", "fermi mcp --url https://fermi.example.org"),
    "worker": CommandEntry("worker", "worker"),
    "scripts": CommandEntry("scripts", "scripts"),
    "render": CommandEntry("scripts", "render"),
    "launch": CommandEntry("launch", "launch"),
    "quickstart": CommandEntry("quickstart", "quickstart"),
    "delete": CommandEntry("tasks", "delete"),
}


SUBCOMMANDS = {
    "environments": (
        "show", "make", "start", "stop", "restart", "keep", "resize", "clone", "delete", "logs", "memory", "packages",
        "level", "warm", "templates",
    ),
    "export": ("mlflow", "wandb"),
}  # fmt: skip
"""Subcommands."""


def make_summary_code(name: str) -> str:
    """Return the code of the command's summary."""
    return f"SUMMARY_{name.upper().replace('-', '_').replace(' ', '_')}"
