"""A Podman that runs no containers: `podman` by name, with one file for each container in the folder PODMAN_STATE. What
it is asked wrongly it refuses as podman-run(1) and the rest say, with their exit codes and words. In place of a
container's first process runs one that holds the keeper's lock, says that it is running, and heeds `stop.json`.

PODMAN_SAYS (JSON) makes it ill: {"info": …} what it says of itself, {"run": [code, text]}, {"pull": [code, text]},
{"away": text} for everything."""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

STATE = Path(os.environ["PODMAN_STATE"])
SAYS = json.loads((STATE / "says.json").read_text()) if (STATE / "says.json").exists() else {}
SWITCHES = {"--detach", "--rm", "--no-healthcheck", "--rootfs", "--env-host=false"}
VALUED = {
    "--name", "--pull", "--user", "--workdir", "--network", "--cap-drop", "--security-opt", "--log-driver", "--log-opt",
    "--shm-size", "--cpus", "--memory", "--pids-limit", "--ulimit", "--mount", "--env", "--label", "--entrypoint",
    "--device",
}  # fmt: skip
INFO = {
    "host": {"cgroupControllers": ["cpu", "memory", "pids", "cpuset"], "security": {"rootless": True}},
    "version": {"Version": "4.3.1"},
}


def main(words: list[str]) -> None:
    with open(STATE / "asked", "a", encoding="utf-8") as file:
        file.write(json.dumps(words) + "\n")
    if "away" in SAYS:
        refuse(125, SAYS["away"])
    match words:
        case ["info", "--format", "{{json .}}"]:
            print(json.dumps(SAYS.get("info", INFO)))
        case ["image", "inspect", "--format", "{{.Id}}", image]:
            if image not in images():
                refuse(125, f"inspecting object: {image}: image not known")
        case ["pull", image]:
            pull(image)
        case ["run", *rest]:
            run(rest)
        case ["container", "inspect", "--format", form, name]:
            inspect(form, name)
        case ["logs", "--tail=5", name]:
            print(SAYS.get("printed", ""))
        case ["ps", "--all", "--quiet", "--no-trunc", *filters]:
            wanted = [one.removeprefix("--filter=label=") for one in filters]
            for one in STATE.glob("*.container"):
                labels = json.loads(one.read_text())["labels"]
                if all(labels.get(name) == value for name, _, value in (each.partition("=") for each in wanted)):
                    print(one.stem)
        case ["rm", "--force", "--time=0", name]:
            remove(name)
        case _:
            refuse(125, f"unknown command {words}")


def refuse(code: int, text: str) -> None:
    sys.stderr.write(f"Error: {text}\n")
    sys.exit(code)


def images() -> list[str]:
    path = STATE / "images"
    return path.read_text().split() if path.exists() else []


def pull(image: str) -> None:
    print(f"Trying to pull {image}...", flush=True)
    while (STATE / "slow").exists():
        time.sleep(0.02)
    if "pull" in SAYS:
        refuse(*SAYS["pull"])
    with open(STATE / "images", "a", encoding="utf-8") as file:
        file.write(f"{image}\n")


def run(rest: list[str]) -> None:
    options, rest = parse(rest)
    if "run" in SAYS:
        refuse(*SAYS["run"])
    if "--rootfs" in options:
        if "rootfs" in SAYS and (not SAYS.get("limits") or "--memory" in options):
            refuse(*SAYS["rootfs"])
        refuse(127, 'runc: exec: "/nothing": stat /nothing: no such file or directory')
    [name], image = options["--name"], rest[0]
    if (STATE / f"{name}.container").exists():
        refuse(125, f'creating container storage: the container name "{name}" is already in use by 4f2a')
    if image not in images():
        refuse(125, f"{image}: image not known")
    mounts = {}
    for one in options["--mount"]:
        about = dict(part.partition("=")[::2] for part in one.split(","))
        if not os.path.isdir(about["source"]):
            refuse(125, f"statfs {about['source']}: no such file or directory")
        mounts[about["target"]] = Path(about["source"])
    if [one for one in options.get("--device", []) if one.startswith("nvidia.com/")]:
        refuse(126, f"setting up CDI devices: unresolvable CDI devices {options['--device'][0]}")
    pid = os.fork()
    if pid == 0:
        run_fake_daemon(mounts["/fermi/run"], mounts["/fermi/told"])
    labels = dict(one.partition("=")[::2] for one in options["--label"])
    (STATE / f"{name}.container").write_text(json.dumps({"pid": pid, "labels": labels}))


def parse(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    options: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        word, words = words[0], words[1:]
        name, equals, value = word.partition("=")
        if word in SWITCHES:
            value = ""
        elif name not in VALUED:
            refuse(125, f"unknown flag: {name}")
        elif not equals:
            value, words = words[0], words[1:]
        options.setdefault(name, []).append(value)
    return options, words


def run_fake_daemon(inside: Path, told: Path) -> None:
    os.setsid()
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    lock = os.open(inside / "keeper.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    spec = json.loads((inside / "keeper.json").read_text())
    if (secrets := inside / "secrets.json").exists():
        secrets.unlink()
    said = {"state": "running", "activity": {"connections": 2}, **json.loads(spec["env"].get("SAYS", "{}"))}
    (inside / "keeper.status.json").write_text(json.dumps(said))
    while not (told / "stop.json").exists() or "DEAF" in spec["env"]:
        time.sleep(0.02)
    (inside / "keeper.status.json").write_text(json.dumps({"state": "exited", "cause": None}))
    os._exit(0)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def inspect(form: str, name: str) -> None:
    path = STATE / f"{name}.container"
    if not path.exists():
        refuse(125, f"inspecting object: no such container {name}")
    if "json .State" not in form or "json .Config.Labels" not in form:
        refuse(125, "template: inspect")
    about = json.loads(path.read_text())
    state = {"Status": "running" if about["pid"] and alive(about["pid"]) else "exited", "ExitCode": 0}
    print(json.dumps({"labels": about["labels"], "state": {**state, **SAYS.get("state", {})}}))


def remove(name: str) -> None:
    path = STATE / f"{name}.container"
    if not path.exists():
        refuse(1, f'no container with name or ID "{name}" found: no such container')
    pid = json.loads(path.read_text())["pid"]
    if pid and alive(pid):
        os.kill(pid, signal.SIGKILL)
        while alive(pid):
            time.sleep(0.01)
    path.unlink()


main(sys.argv[1:])
