"""Tokens end and are renewed while the platform runs; who holds a connection reads them again."""

import os
import stat
import sys
from pathlib import Path

import pytest

from fermi.engines.kubernetes.client import KubernetesClient
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Phase
from tests.fakes.kubernetes import Sleeps
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, Lab, job, observe_one, submit, until_seen


def client(lab: Lab) -> KubernetesClient:
    return KubernetesClient({"kubeconfig": str(lab.cluster.kubeconfig), "namespace": lab.cluster.namespace})


def listed(one: KubernetesClient) -> list:
    return one.get(one.path("Job"))["items"]


def plugin(folder: Path, token: Path) -> dict:
    """An exec plug-in that says what stands in `token`, and notes each time that it ran."""
    script = folder / "login"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json\n"
        f"open({str(folder / 'ran')!r}, 'a').write('x')\n"
        f"token = open({str(token)!r}).read()\n"
        "version = 'client.authentication.k8s.io/v1'\n"
        "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': version, 'status': {'token': token}}))\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}


def test_a_task_continues_with_the_token_of_a_renewed_kubeconfig(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.cluster.accept("second")
    lab.cluster.write_kubeconfig(token="second")
    lab.cluster.break_connections()
    until(lambda: (backend.cancel(one, 0.0), observe_one(backend, one).left is False)[1], what="stopped")


def test_a_refused_watch_continues_once_the_token_is_renewed(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.cluster.accept("second")
    lab.cluster.break_connections()
    until(lambda: lab.cluster.server.unauthorized > 8, what="refused")
    lab.cluster.evict(lab.cluster.pods(POD)[0])
    lab.cluster.write_kubeconfig(token="second")
    until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED)


def test_a_token_file_is_reread_when_it_changes(lab, tmp_path):
    """As a kubelet renews a projected token: a link that points to another folder."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(f"{name}\n")
    link = tmp_path / "data"
    link.symlink_to("first")
    lab.cluster.accept("first")
    lab.cluster.write_kubeconfig(tokenFile=str(link / "token"))
    one = client(lab)
    listed(one)
    lab.cluster.accept("second")
    (tmp_path / "next").symlink_to("second")
    os.replace(tmp_path / "next", link)
    refused = lab.cluster.server.unauthorized
    listed(one)
    assert lab.cluster.server.unauthorized == refused, "the change was seen before it was asked"


def test_a_credential_plugin_is_run_again_when_its_token_is_refused(lab, tmp_path):
    token = tmp_path / "token"
    token.write_text("first")
    lab.cluster.accept("first")
    lab.cluster.write_kubeconfig(exec=plugin(tmp_path, token))
    one = client(lab)
    listed(one)
    listed(one)
    assert (tmp_path / "ran").read_text() == "x"
    token.write_text("second")
    lab.cluster.accept("second")
    listed(one)
    assert (tmp_path / "ran").read_text() == "xx"


def test_concurrent_refusals_run_a_credential_plugin_once(lab, tmp_path):
    token = tmp_path / "token"
    token.write_text("first")
    lab.cluster.accept("first")
    lab.cluster.write_kubeconfig(exec=plugin(tmp_path, token))
    one = client(lab)
    listed(one)
    lab.cluster.accept("second")
    token.write_text("second")
    one.together(lambda _: listed(one), range(20))
    assert (tmp_path / "ran").read_text() == "xx"


def test_permanently_refused_credentials_are_reported_and_can_be_renewed(lab):
    one = client(lab)
    listed(one)
    lab.cluster.accept("second")
    for _ in range(3):
        with pytest.raises(BackendError) as raised:
            listed(one)
        assert (raised.value.code, raised.value.permanent) == ("ENGINE_UNAUTHORIZED", False)
    lab.cluster.write_kubeconfig(token="second")
    listed(one)


def test_a_failing_credential_plugin_is_named(lab, tmp_path):
    lab.cluster.write_kubeconfig(exec={**plugin(tmp_path, tmp_path / "nothing"), "command": "/nowhere/login"})
    with pytest.raises(BackendError) as raised:
        listed(client(lab))
    assert raised.value.code == "ENGINE_NOT_CONFIGURED"
    assert "/nowhere/login" in raised.value.params["why"]


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"tokenFile": "/nowhere/token"}, "/nowhere/token"),
        ({"client-certificate": "/nowhere/crt", "client-key": "/nowhere/key"}, "/nowhere/crt"),
    ],
)
def test_a_missing_file_is_named(lab, user, named):
    lab.cluster.write_kubeconfig(**user)
    with pytest.raises(BackendError) as raised:
        listed(client(lab))
    assert raised.value.code == "ENGINE_NOT_CONFIGURED"
    assert named in raised.value.params["why"]


@pytest.mark.parametrize("text", ["", "no: [yaml", "just words", "- 1\n- 2\n", "users: 7\nclusters: 8\n"])
def test_an_invalid_kubeconfig_is_named(lab, text):
    lab.cluster.kubeconfig.write_text(text)
    with pytest.raises(BackendError) as raised:
        listed(client(lab))
    assert raised.value.code == "ENGINE_NOT_CONFIGURED"
    assert str(lab.cluster.kubeconfig) in raised.value.params["why"]


def test_a_newline_at_the_end_of_a_token_is_removed(lab):
    lab.cluster.write_kubeconfig(token="fake-token\n")
    listed(client(lab))
