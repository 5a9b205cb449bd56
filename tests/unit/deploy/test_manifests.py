"""What deploys Fermi: the chart, the plain manifests made from it, docker-compose.yml, the image."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fermi.engines.kubernetes.permissions import ENVIRONMENT_RULES, RULES
from scripts import manifests as chart

CHART = chart.CHART

EXTERNAL = {"postgresql": {"bundled": False}, "redis": {"bundled": False}}
EVERYTHING = {
    "allowedHosts": ["fermi.internal"],
    "autoscaling": {"enabled": True},
    "data": {"existingClaim": "shared"},
    "image": {"tag": "1.2.3", "pullSecrets": ["registry"]},
    "metrics": {"port": 9464, "annotations": True, "from": [{"namespaceSelector": {"matchLabels": {"name": "watch"}}}]},
    "traces": {"endpoint": "http://collector:4318"},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a/b": "c"}},
    "publicUrl": "https://fermi.example.org",
    "settings": {"FERMI_LOCAL_ACCOUNTS": 0, "FERMI_IDENTITY_PROVIDERS": '[{"id": "company"}]'},
    "secretSettings": ["FERMI_OIDC_CLIENT_SECRET"],
    "training": {
        "namespaces": ["team-a", "team-b"],
        "environmentNamespaces": ["notebooks"],
        "nodes": True,
        "taint": True,
    },
}
LEAST = {"networkPolicies": False, "training": {"nodes": False}}
VALUES = {"default": {}, "external": EXTERNAL, "everything": EVERYTHING, "least": {**LEAST, **EXTERNAL}}
OWN = {"web", "worker", "beat", "watcher", "migrate"}


def manifests(values: dict[str, Any]) -> list[dict[str, Any]]:
    if not chart.find_helm():
        pytest.skip("no helm: none on the PATH, and `make test` has none for this machine")
    return chart.render_manifests(values)


def key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(component, pod spec) of everything that makes pods."""
    for one in objects:
        template = one.get("spec", {}).get("template")
        if template:
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


@pytest.fixture(params=VALUES)
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return manifests(VALUES[request.param])


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_every_object_validates_strictly(objects: list[dict[str, Any]], version: str) -> None:
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)


def test_no_object_is_defined_twice(objects: list[dict[str, Any]]) -> None:
    assert len({key(one) for one in objects}) == len(objects)


def test_every_pod_meets_the_restricted_level_and_writes_only_to_volumes(objects: list[dict[str, Any]]) -> None:
    for name, pod in pods(objects):
        security = pod["securityContext"]
        assert security["runAsNonRoot"], name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name
            assert container["resources"]["requests"], name


def test_only_pods_that_use_kubernetes_have_a_token(objects: list[dict[str, Any]]) -> None:
    holders = {name for name, pod in pods(objects) if pod["automountServiceAccountToken"]}
    assert holders == {"web", "worker", "watcher"}


def test_selectors_match_their_pods(objects: list[dict[str, Any]]) -> None:
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"]
        for one in objects
        if one.get("spec", {}).get("template")
        for name in [one["metadata"]["name"]]
    }
    for one in objects:
        if one["kind"] in ("Deployment", "StatefulSet"):
            wanted = one["spec"]["selector"]["matchLabels"]
            assert [name for name, has in labels.items() if wanted.items() <= has.items()] == [one["metadata"]["name"]]
        if one["kind"] == "Service":
            chosen = [name for name, has in labels.items() if one["spec"]["selector"].items() <= has.items()]
            assert chosen == [one["metadata"]["name"]]


@pytest.mark.parametrize("taint", [False, True])
def test_roles_allow_exactly_what_the_backend_needs(taint: bool) -> None:
    objects = manifests({"training": {"namespaces": ["team-a"], "nodes": True, "taint": taint}})
    roles = [one for one in objects if one["kind"] == "Role"]
    assert {one["metadata"]["namespace"] for one in roles} == {"team-a"}
    for role in roles:
        assert role["rules"] == [rule.to_json() for rule in RULES if rule.namespaced]
    [cluster_role] = [one for one in objects if one["kind"] == "ClusterRole"]
    assert cluster_role["rules"] == [
        rule.to_json() for rule in RULES if not rule.namespaced and (taint or rule.purpose != "taint")
    ]


def test_a_namespace_with_environments_only_has_its_own_role() -> None:
    objects = manifests({"training": {"namespaces": ["team-a"], "environmentNamespaces": ["notebooks", "team-a"]}})
    roles = [one for one in objects if one["kind"] == "Role" and one["metadata"]["name"].endswith("-environments")]
    assert {one["metadata"]["namespace"] for one in roles} == {"notebooks", "team-a"}
    for role in roles:
        assert role["rules"] == [rule.to_json() for rule in ENVIRONMENT_RULES]
    bound = {key(one)[1:] for one in objects if one["kind"] == "RoleBinding"}
    assert {key(one)[1:] for one in roles} <= bound
    assert len({key(one) for one in objects}) == len(objects)


def test_the_manifest_for_environments_grants_what_the_backend_needs(root: Path) -> None:
    objects = list(yaml.safe_load_all((root / "deploy" / "kubernetes" / "rbac-environments.yaml").read_text()))
    for one in objects:
        kubernetes_validate.validate(one, "1.30", strict=True)
    role, binding = objects
    assert role["rules"] == [rule.to_json() for rule in ENVIRONMENT_RULES]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    accounts = yaml.safe_load_all((root / "deploy" / "kubernetes" / "rbac.yaml").read_text())
    account = next(one for one in accounts if one["kind"] == "ServiceAccount")
    subject = {"kind": "ServiceAccount", **{part: account["metadata"][part] for part in ("name", "namespace")}}
    assert binding["subjects"] == [subject]


def test_the_manifest_for_training_grants_what_the_backend_needs(root: Path) -> None:
    objects = list(yaml.safe_load_all((root / "deploy" / "kubernetes" / "rbac.yaml").read_text()))
    for one in objects:
        kubernetes_validate.validate(one, "1.30", strict=True)
    rules = [rule for one in objects for rule in one.get("rules", [])]
    assert rules == [rule.to_json() for rule in RULES if rule.purpose != "taint"]


def by_hand(root: Path, namespace: str) -> list[dict[str, Any]]:
    text = (root / "deploy" / "kubernetes" / "rbac.yaml").read_text()
    return list(yaml.safe_load_all(text.replace("training", namespace)))


def taken_away(*objects: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Of objects that are applied one after the other: those that replace another one by something else."""
    granted: dict[tuple[str, str, str], Any] = {}
    contents = [(key(one), {name: value for name, value in one.items() if name != "metadata"}) for one in objects]
    return [name for name, content in contents if granted.setdefault(name, content) != content]


def test_permissions_in_a_second_namespace_keep_those_in_the_first(root: Path) -> None:
    assert not taken_away(*by_hand(root, "training"), *by_hand(root, "other"))


def test_the_chart_keeps_the_permissions_of_a_platform_outside(root: Path) -> None:
    release = manifests({"training": {"namespaces": ["training"], "nodes": True}})
    rights = [one for one in release if one["kind"].endswith(("Role", "RoleBinding"))]
    assert not taken_away(*by_hand(root, "training"), *rights)


def test_the_platform_has_no_permissions_in_its_own_namespace(objects: list[dict[str, Any]]) -> None:
    granted = [one["metadata"]["namespace"] for one in objects if one["kind"] in ("Role", "RoleBinding")]
    assert "fermi" not in granted


def test_secrets_are_referenced_and_never_embedded(objects: list[dict[str, Any]]) -> None:
    assert not [one for one in objects if one["kind"] == "Secret"]
    for _, pod in pods(objects):
        for variable in pod["containers"][0].get("env", []):
            if re.search("KEY|PASSWORD|TOKEN|HEADERS", variable["name"]):
                assert variable["valueFrom"]["secretKeyRef"]["key"] == variable["name"]


def test_scraper_and_web_process_share_the_metrics_token() -> None:
    objects = manifests({"serviceMonitor": True, "secretName": "keys"})
    [monitor] = [one for one in objects if one["kind"] == "ServiceMonitor"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "keys", "key": "FERMI_METRICS_TOKEN"}}
    web = next(pod for name, pod in pods(objects) if name == "web")
    [given] = [one for one in web["containers"][0]["env"] if one["name"] == "FERMI_METRICS_TOKEN"]
    assert given["valueFrom"]["secretKeyRef"] == {"name": "keys", "key": "FERMI_METRICS_TOKEN", "optional": True}


def test_a_metrics_port_exists_only_where_configured() -> None:
    for values, port in (({}, None), ({"metrics": {"port": 9464, "from": [{"podSelector": {}}]}}, 9464)):
        objects = manifests({"serviceMonitor": True, **values})
        one = {(found["kind"], found["metadata"]["name"]): found for found in objects}
        web = one["Deployment", "fermi-web"]["spec"]["template"]
        ports = {named["name"]: named["containerPort"] for named in web["spec"]["containers"][0]["ports"]}
        assert ports.get("metrics") == port
        given = {variable["name"]: variable.get("value") for variable in web["spec"]["containers"][0]["env"]}
        assert given.get("FERMI_METRICS_PORT") == (str(port) if port else None)
        assert given.get("FERMI_METRICS_OPEN") in (None, "0")
        service = [named["name"] for named in one["Service", "fermi-web"]["spec"]["ports"]]
        [endpoint] = one["ServiceMonitor", "fermi"]["spec"]["endpoints"]
        assert endpoint["port"] == service[-1] == ("metrics" if port else "http")
        assert endpoint["authorization"]["credentials"]["key"] == "FERMI_METRICS_TOKEN"
        allowed = one["NetworkPolicy", "fermi-web"]["spec"]["ingress"]
        assert [rule.get("from") for rule in allowed] == ([None, [{"podSelector": {}}]] if port else [None])
        others = [
            named for name, pod in pods(objects) if name in OWN - {"web"} for named in pod["containers"][0]["env"]
        ]
        assert not [named for named in others if named["name"] == "FERMI_METRICS_PORT"]


def test_an_open_metrics_port_has_annotations_and_no_token() -> None:
    objects = manifests({"serviceMonitor": True, "metrics": {"port": 9464, "open": True, "annotations": True}})
    [monitor] = [one for one in objects if one["kind"] == "ServiceMonitor"]
    assert "authorization" not in monitor["spec"]["endpoints"][0]
    [web] = [one for one in objects if one["metadata"]["name"] == "fermi-web" and one["kind"] == "Deployment"]
    assert web["spec"]["template"]["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true", "prometheus.io/port": "9464", "prometheus.io/path": "/metrics",
    }  # fmt: skip
    assert {"name": "FERMI_METRICS_OPEN", "value": "1"} in web["spec"]["template"]["spec"]["containers"][0]["env"]


def test_every_process_gets_the_collectors_address(root: Path) -> None:
    objects = manifests({"traces": {"endpoint": "http://collector:4318"}})
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    for name, pod in pods(objects):
        if name in OWN:
            given = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
            assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
            assert compose[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "${OTEL_EXPORTER_OTLP_ENDPOINT:-}"


# Settings -------------------------------------------------------------------------------------------------------------


def known_settings(root: Path) -> set[str]:
    """Every variable that the platform reads."""
    text = "".join(path.read_text() for path in (root / "platform" / "server").rglob("*.py"))
    return set(re.findall(r"\"((?:FERMI_|OTEL_)\w+|DATABASE_URL|REDIS_URL)\"", text))


def test_every_variable_that_is_set_is_read(root: Path) -> None:
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())
    image = re.findall(r"(\w+)=", " ".join(re.findall(r"^ENV (.*(?:\\\n.*)*)", dockerfile(root), re.MULTILINE)))
    given = {*compose["services"]["web"]["environment"], *image}
    for values in VALUES.values():
        for name, pod in pods(manifests({**values, "settings": {}, "secretSettings": []})):
            if name in OWN:
                given |= {variable["name"] for variable in pod["containers"][0]["env"]}
    python = {"PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "HOME"}
    of_others = {"POD_IP", "POSTGRES_PASSWORD", "OTEL_SERVICE_NAME", "OTEL_EXPORTER_OTLP_HEADERS"}
    assert given - python - of_others <= known_settings(root)
    assert {"DATABASE_URL", "REDIS_URL", "FERMI_SECRET_KEY", "FERMI_ALLOWED_HOSTS", "FERMI_DATA"} <= given


def test_every_process_gets_every_other_setting(root: Path) -> None:
    secret = {"valueFrom": {"secretKeyRef": {"name": "fermi", "key": "FERMI_OIDC_CLIENT_SECRET"}}}
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    for name, pod in pods(manifests(EVERYTHING)):
        if name in OWN:
            env = pod["containers"][0]["env"]
            assert {"name": "FERMI_LOCAL_ACCOUNTS", "value": "0"} in env, name
            assert {"name": "FERMI_IDENTITY_PROVIDERS", "value": '[{"id": "company"}]'} in env, name
            assert {"name": "FERMI_OIDC_CLIENT_SECRET", **secret} in env, name
            assert compose[name]["env_file"] == ["${FERMI_ENV_FILE:-deploy/docker/settings.env}"]
    lines = (root / "deploy" / "docker" / "settings.env").read_text().splitlines()
    assert all(line.startswith("#") for line in lines)


def test_a_setting_with_a_value_of_its_own_is_refused_as_another() -> None:
    rendered = {
        variable["name"]
        for values in (EVERYTHING, EXTERNAL, {"files": {"place": "s3://bucket"}, "trustedProxies": ["10.0.0.1"]})
        for name, pod in pods(manifests({**values, "settings": {}, "secretSettings": []}))
        if name in OWN
        for variable in pod["containers"][0]["env"]
    }
    (listed,) = re.findall(r"\$own := list (.*) }}", (CHART / "templates" / "_helpers.tpl").read_text())
    assert rendered <= set(listed.replace('"', "").split())
    for values in ({"settings": {"FERMI_PUBLIC_URL": "x"}}, {"secretSettings": ["FERMI_PUBLIC_URL"]}):
        with pytest.raises(subprocess.CalledProcessError):
            manifests(values)


def test_a_variable_follows_those_it_refers_to(objects: list[dict[str, Any]]) -> None:
    for _, pod in pods(objects):
        names: list[str] = []
        for variable in pod["containers"][0].get("env", []):
            assert set(re.findall(r"\$\((\w+)\)", variable.get("value", ""))) <= set(names)
            names.append(variable["name"])


# Compose and the image ------------------------------------------------------------------------------------------------


def test_compose_runs_the_same_commands_as_the_chart(root: Path) -> None:
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    commands = {name: pod["containers"][0].get("command") for name, pod in pods(manifests({})) if name in OWN}
    assert {name: compose[name]["command"] for name in OWN} == commands
    assert set(compose) == OWN | {"postgresql", "redis"}
    for name in OWN:
        assert compose[name]["read_only"]
        assert compose[name]["cap_drop"] == ["ALL"]


def dockerfile(root: Path) -> str:
    return (root / "deploy" / "docker" / "Dockerfile").read_text()


@pytest.mark.parametrize("file", ["deploy/docker/Dockerfile", "tests/deploy/images/host.Containerfile"])
def test_the_image_copies_existing_files_of_its_context(root: Path, file: str) -> None:
    kept = [line[1:] for line in (root / ".dockerignore").read_text().split() if line[0] == "!"]
    for line in re.findall(r"^COPY (?!--from)(.*)$", (root / file).read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (root / source).exists(), source
            assert any(f"{source}/".startswith(f"{path}/") or path.startswith(f"{source}/") for path in kept), source


def test_the_image_runs_unprivileged_and_has_no_training_stack(root: Path) -> None:
    text = dockerfile(root)
    assert re.search(r"^USER 1000:1000$", text, re.MULTILINE)
    packages = (root / "deploy" / "docker" / "requirements.txt").read_text()
    assert "(base, server, s3, tracing)" in packages.splitlines()[0]
    assert not re.search(r"^(torch|jax|deepspeed)\b", packages, re.MULTILINE)


def test_the_image_installs_by_hash_and_has_an_sbom(root: Path) -> None:
    installs = re.findall(r"pip install (.*)", dockerfile(root))
    assert [("--require-hashes" in one, "deploy/docker/requirements.txt" in one) for one in installs] == [(True, True)]
    assert re.findall(r"npm (ci|install)\b", dockerfile(root)) == ["ci"]  # by the hashes of package-lock.json
    assert re.search(r"sbom\.py .*requirements\.txt frontend/package-lock\.json", dockerfile(root))
    assert "COPY --from=packages /src/sbom.json ./" in dockerfile(root)


DIGEST = f"sha256:{'1a' * 32}"


def test_every_image_can_be_pinned_by_digest(root: Path) -> None:
    assert re.findall(r"^FROM (\S+)", dockerfile(root), re.MULTILINE) == ["${NODE_IMAGE}", *["${PYTHON_IMAGE}"] * 2]
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)", dockerfile(root), re.MULTILINE))
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    for name, service in compose.items():
        assert re.fullmatch(r"\$\{\w+_IMAGE:-[\w.:-]+\}", service["image"]), name
    for name in OWN:
        assert compose[name]["build"]["args"] == {arg: f"${{{arg}:-{default}}}" for arg, default in defaults.items()}


def test_the_chart_pins_images_by_digest() -> None:
    values = {
        "image": {"repository": "registry.example.org/fermi", "tag": "1.2.3", "digest": DIGEST},
        "postgresql": {"image": f"postgres:16@{DIGEST}"},
        "redis": {"image": f"redis:7@{DIGEST}"},
    }
    images = {one["image"] for _, pod in pods(manifests(values)) for one in pod["containers"]}
    assert images == {f"{name}@{DIGEST}" for name in ("registry.example.org/fermi:1.2.3", "postgres:16", "redis:7")}


# Restoring ------------------------------------------------------------------------------------------------------------

COMPOSE = """echo "$*" >> "$CALLS"; case "$*" in *pg_restore*) [ "$(cat)" = whole ] ;; esac"""
"""Stands in for `docker compose`: writes down what it is told, and can read one dump only."""


@pytest.mark.parametrize("dump", ["whole", "torn"])
def test_a_restore_stops_nothing_before_the_dump_was_read(dump: str, tmp_path: Path) -> None:
    (tmp_path / "compose").write_text(COMPOSE)
    (tmp_path / "database").write_text(dump)
    subprocess.run(["tar", "-cf", "data", "compose"], cwd=tmp_path, check=True)
    subprocess.run(["tar", "-cf", "backup.tar", "database", "data"], cwd=tmp_path, check=True)
    env = {**os.environ, "COMPOSE": f"sh {tmp_path}/compose", "CALLS": str(tmp_path / "calls")}
    restore = [str(CHART.parents[1] / "docker" / "restore.sh"), str(tmp_path / "backup.tar")]
    done = subprocess.run(restore, env=env, capture_output=True, text=True)
    first, *others = (tmp_path / "calls").read_text().splitlines()
    assert "pg_restore" in first
    assert first.startswith("run --rm --no-deps"), "in a container of its own: what serves is left alone"
    if dump == "whole":
        assert (done.returncode, others[0], others[-1]) == (0, "stop web worker beat watcher", "up --detach")
    else:
        assert (done.returncode != 0, others) == (True, [])
    assert not list(tmp_path.glob("fermi-restore.*"))


def test_every_value_is_used() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())

    def paths(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict) and value and path not in (".Values.ingress.annotations", ".Values.settings"):
            for name, inner in value.items():
                yield from paths(inner, f"{path}.{name}")
        else:
            yield path

    through_index = tuple(f".Values.{name}.resources" for name in OWN)
    assert not [one for one in paths(values, ".Values") if one not in text and not one.startswith(through_index)]
