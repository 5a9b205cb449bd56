"""Run with a platform's own settings: a dev environment on a worker's host, as the platform's processes steer it.

python -m tests.e2e.environment_script begin|end HOST [IMAGE]
"""

import json
import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
django.setup(set_prefix=False)

from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment  # noqa: E402
from apps.workers.models import Worker  # noqa: E402
from fermi.engines.environments import (  # noqa: E402
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentPort,
    EnvironmentSpec,
    EnvironmentStatus,
)
from fermi.envd import protocol  # noqa: E402
from fermi.planning import plugins  # noqa: E402
from tests.polling import until  # noqa: E402

SCRIPT = "echo the script has begun; exec python3 -m http.server 0 --bind 127.0.0.1"
FIRST = EnvironmentHandle("env-onhost", 1)


def main(step: str, host: str, image: str = "") -> None:
    cluster = Cluster.objects.get(pk="workers")
    hosting = plugins.get_environment_backend("agent", {"data_dir": os.environ["FERMI_DATA"]})
    assert hosting
    print(json.dumps(begin(hosting, cluster, host, image) if step == "begin" else end(hosting)))


def begin(hosting: EnvironmentBackend, cluster: Cluster, host: str, image: str) -> object:
    worker = Worker.objects.filter(node=host).first()
    assert worker
    zone = AvailabilityZone.objects.first()
    assert zone
    about = {"name": "on host", "project": worker.project, "cluster": cluster, "zone": zone}
    DevEnvironment.objects.update_or_create(pk=FIRST.environment, defaults=about)
    spec = EnvironmentSpec(
        FIRST.environment, "on host", worker.project_id, 1, "custom", gpu_count=1, emulated=True, host=host,
        env={"COLOUR": "blue"}, ports=(EnvironmentPort("files", 6006),), start_script=SCRIPT, image=image,
    )  # fmt: skip
    until(lambda: not hosting.problems(spec), what="its agent has reported its container engine")
    hosting.start(hosting.render(spec))
    until(lambda: seen(hosting).phase is EnvironmentPhase.RUNNING, what="it runs")
    said = run(hosting, "echo $COLOUR; echo kept > file; pwd")
    until(lambda: b"has begun" in hosting.logs(FIRST, 0).data, what="its log is here")
    return {"engine": seen(hosting).facts["engine"], "said": said}


def end(hosting: EnvironmentBackend) -> object:
    until(lambda: seen(hosting).phase is EnvironmentPhase.RUNNING, what="it goes on")
    said = run(hosting, "cat file")

    def over() -> bool:
        hosting.stop(FIRST, 5)
        return seen(hosting).left is False

    until(over, what="nothing of it is left")
    until(lambda: hosting.delete(FIRST.environment), what="its disk is gone")
    return {"said": said}


def seen(hosting: EnvironmentBackend) -> EnvironmentStatus:
    return hosting.observe([FIRST])[FIRST.name]


def run(hosting: EnvironmentBackend, command: str) -> str:
    with hosting.dial(FIRST) as stream:
        answer = protocol.send_request(
            stream, {"open": "exec", "command": ["sh", "-c", command], "cwd": "", "env": {}, "tty": None}
        )
        assert answer["ok"], answer
        stream.settimeout(30)
        frames, printed = protocol.FrameDecoder(), b""
        while data := stream.recv(1 << 16):
            for channel, payload in frames.feed(data):
                printed += payload if channel == protocol.OUT else b""
                if channel == protocol.CONTROL:
                    return printed.decode()
    raise AssertionError(printed)


if __name__ == "__main__":
    main(*sys.argv[1:])
