"""Hooks for MLflow: metrics, parameters and tags, and where runs go without a tracking server (mlflow 3.17)."""

from __future__ import annotations

import copy
import os
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import tracker_media as media
from .records import is_open
from .tracker_calls import CallRecorder, observe_calls, replace_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rank import ProgressWriter
    from .tracker_calls import Noted

SOURCE = "mlflow"
TOKEN_PREFIX = "fermi-run-"
RECORDED_ENDPOINTS = (
    "/mlflow/runs/log-metric", "/mlflow/runs/log-parameter", "/mlflow/runs/set-tag", "/mlflow/runs/log-batch",
    "/mlflow/runs/update",
)  # fmt: skip
IMPATIENT = {"max_retries": 1, "timeout": 10, "raise_on_status": False}
MAX_SEEN = 10_000
AWAY_SECONDS = 30.0
"""After which a server that did not answer is tried again."""


class _Fluent(threading.local):
    without_step = False


_fluent = _Fluent()
"""This thread is in `mlflow.log_metric(s)`, which was given no step and passes 0 on."""


def tracking_uri(pulse: ProgressWriter, utils: ModuleType) -> None:
    """Keep runs in the output folder where no tracking URI is set: MLflow would write `mlflow.db` and `mlruns` into the
    working folder, which is the code's, unless it has runs there (`get_tracking_uri` and `_get_sqlalchemy_store` in
    mlflow/tracking/_tracking_service/utils.py). MLflow 2 has a folder instead of a database. Each rank has its own:
    SQLite serves one writer."""
    output, rank = os.environ.get("FERMI_OUTPUT_DIR", ""), os.environ.get("RANK", "0")
    if not output:
        return
    own = os.path.join(os.path.abspath(output), "mlflow" if rank == "0" else f"mlflow-{rank}")
    if not hasattr(utils, "_get_default_tracking_uri"):
        if not os.path.isdir("mlruns"):
            utils.DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH = own  # type: ignore[attr-defined]
        return
    find_default = utils._get_default_tracking_uri

    def find_uri() -> Any:
        found = find_default()
        try:
            if str(found).startswith("sqlite:"):
                os.makedirs(own, exist_ok=True)
                default = utils.path_to_local_sqlite_uri(os.path.join(own, "mlflow.db"))
                utils.DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH = os.path.join(own, "artifacts")  # type: ignore[attr-defined]
                return default
        except Exception:  # no such function, or no such folder
            pass
        return found

    replace_function(utils, "_get_default_tracking_uri", find_uri)


def requests(pulse: ProgressWriter, module: ModuleType) -> None:
    """Mark requests to the platform's own server (`FERMI_MLFLOW_URI`) as made by a process whose calls are recorded,
    so that no value becomes a second curve, and have values that are recorded not wait for the server: ranks go on
    while the platform is away. Keep the platform's token from other servers that a script names."""
    platform = os.environ.get("FERMI_MLFLOW_URI", "")
    if not platform:
        return
    request = module.http_request
    state = {"away_until": 0.0}

    def http_request(host_creds: Any, endpoint: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        if not str(host_creds.host).startswith(platform):
            if str(getattr(host_creds, "token", None) or "").startswith(TOKEN_PREFIX):
                host_creds = copy.copy(host_creds)
                host_creds.token = None
            return request(host_creds, endpoint, method, *args, **kwargs)
        if not args:
            own = {"X-Fermi-Rank": os.environ.get("RANK", "0"), **({"X-Fermi-Recorded": "1"} if is_open() else {})}
            kwargs["extra_headers"] = {**(kwargs.get("extra_headers") or {}), **own}
        if args or not is_open() or not str(endpoint).endswith(RECORDED_ENDPOINTS):
            return request(host_creds, endpoint, method, *args, **kwargs)
        if time.monotonic() < state["away_until"]:
            return _make_empty_response()
        try:
            answer = request(host_creds, endpoint, method, **{**kwargs, **IMPATIENT})
        except Exception:
            answer = None
        if answer is None or answer.status_code >= 500 or answer.status_code == 429:
            state["away_until"] = time.monotonic() + AWAY_SECONDS
            return _make_empty_response()
        return answer

    replace_function(module, "http_request", http_request)


def _make_empty_response() -> Any:
    from requests import Response

    response = Response()
    response.status_code, response._content, response.encoding = 200, b"{}", "utf-8"
    return response


def fluent(pulse: ProgressWriter, module: ModuleType) -> None:
    """Notice whether `mlflow.log_metric(s)` is given a step."""
    for name in ("log_metric", "log_metrics"):
        replace_function(module, name, _mark(getattr(module, name)))


def _mark(function: Callable[..., Any]) -> Callable[..., Any]:
    place = 2  # of `step`

    def log(*args: Any, **kwargs: Any) -> Any:
        _fluent.without_step = (args[place] if len(args) > place else kwargs.get("step")) is None
        try:
            return function(*args, **kwargs)
        finally:
            _fluent.without_step = False

    return log


def client(pulse: ProgressWriter, module: ModuleType) -> None:
    """Record what reaches the client that all interfaces end in, those of autologging among them."""
    recorder = CallRecorder(SOURCE, pulse)

    seen: dict[tuple[Any, ...], None] = {}

    def find_step(step: Any) -> Any:
        return None if _fluent.without_step else step

    def is_repeated(run: Any, key: Any, value: Any, timestamp: Any, step: Any, model: Any) -> bool:
        """Return True for a value that a run logs once more for a model (MLflow 3)."""
        mark = (str(run), str(key), float(value) if isinstance(value, (int, float)) else None, timestamp, step)
        if mark in seen:
            return bool(model)
        seen[mark] = None
        if len(seen) > MAX_SEEN:
            del seen[next(iter(seen))]
        return False

    def is_beside(own: Any, run_id: Any) -> bool:
        """Return True for a run below the task's own, whose values the platform's server keeps apart: the score of
        each candidate of a search is no point of the task's curve."""
        platform, task = os.environ.get("FERMI_MLFLOW_URI", ""), os.environ.get("FERMI_TASK_ID", "")
        if not (platform and task) or os.environ.get("RANK", "0") != "0":
            return False
        return str(getattr(own, "tracking_uri", "")).startswith(platform) and run_id != task

    def log_metric(own: Any, run_id: Any, key: Any, value: Any, timestamp: Any = None, step: Any = None, *_: Any,
                   model_id: Any = None, **__: Any) -> None:  # fmt: skip
        if not is_beside(own, run_id) and not is_repeated(run_id, key, value, timestamp, step, model_id):
            recorder.record_value(str(key), value, find_step(step))

    def log_batch(own: Any, run_id: Any, metrics: Any = (), params: Any = (), tags: Any = (), *_: Any,
                  **__: Any) -> None:  # fmt: skip
        steps: dict[Any, dict[str, Any]] = {}
        if is_beside(own, run_id):
            return
        for one in metrics:
            model = getattr(one, "model_id", None)
            if is_repeated(run_id, one.key, one.value, getattr(one, "timestamp", None), one.step, model):
                continue
            steps.setdefault(find_step(one.step), {})[str(one.key)] = one.value
        for step, values in steps.items():
            if step is None:
                for name, value in values.items():
                    recorder.record_value(name, value)
            else:
                recorder.record_values(values, step)
        parameters = {str(one.key): parse_parameter(one.value) for one in [*params, *tags] if is_user_name(one.key)}
        recorder.record_parameters(parameters)

    def log_pair(own: Any, run_id: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
        if is_user_name(key) and not is_beside(own, run_id):
            recorder.record_parameters({str(key): parse_parameter(value)})

    observe_calls(module.TrackingServiceClient, "log_metric", log_metric)
    observe_calls(module.TrackingServiceClient, "log_batch", log_batch)
    observe_calls(module.TrackingServiceClient, "log_param", log_pair)
    observe_calls(module.TrackingServiceClient, "set_tag", log_pair)


def artifacts(pulse: ProgressWriter, module: ModuleType) -> None:
    """Save texts and images."""
    recorder = CallRecorder(SOURCE, pulse)

    def log_text(own: Any, run_id: Any, text: str, artifact_file: str, *_: Any, **__: Any) -> Noted:
        media.save_text(SOURCE, artifact_file, recorder.find_step({}, None, 0), text)
        return None

    def log_image(own: Any, run_id: Any, image: Any, artifact_file: Any = None, key: Any = None, step: Any = None,
                  *_: Any, **__: Any) -> Noted:  # fmt: skip
        content = media.encode_image(image)
        if content is not None:
            name = str(key or artifact_file or "image")
            media.save_media(SOURCE, "image", name, recorder.find_step({}, step, 0), content, ".png")
        return None

    observe_calls(module.MlflowClient, "log_text", log_text)
    observe_calls(module.MlflowClient, "log_image", log_image)


def is_user_name(key: object) -> bool:
    """Return True for names that are not MLflow's own (`mlflow.source.name`)."""
    return not str(key).startswith("mlflow.")


def parse_parameter(text: Any) -> Any:
    """Return the boolean or number that MLflow has made a text of, or what is given."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float) if isinstance(text, str) else ():
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text
