"""Creating training tasks: what is accepted, what is answered, what is refused."""

import copy

import pytest

from apps.catalog.models import DatasetVersion
from apps.training.models import Event, Node, Task
from apps.training.reconcile import reconciler
from apps.training.states import TaskState

DOCUMENT = {
    "taskName": "gpt3-pretraining",
    "datasetId": "dataset-001",
    "datasetVersionId": "version-001",
    "modelId": "model-001",
    "launchMode": "existing",
    "distributedConfig": {
        "enabled": True,
        "nodeIds": ["env-001", "env-003", "env-005"],
        "masterNode": "env-001",
        "framework": "ddp",
        "strategy": {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8},
    },
}


def changed(**changes):
    """The document's request with `path__to__field=value` changed; None removes."""
    request = copy.deepcopy(DOCUMENT)
    for path, value in changes.items():
        *parents, name = path.split("__")
        target = request
        for parent in parents:
            target = target[parent]
        if value is None:
            target.pop(name, None)
        else:
            target[name] = value
    return request


pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


def test_the_documents_request_gets_the_documented_answer(colleague):
    answer = colleague.post("/training-tasks", DOCUMENT)
    assert answer.status == 201
    assert (answer.body["code"], answer.body["message"]) == (200, "训练任务创建成功")
    data = answer.data
    assert data["taskId"].startswith("task-")
    assert data["status"] == "initializing"
    assert data["distributedInfo"] == {
        "nodeCount": 3, "totalGpus": 14, "masterNode": "env-001", "framework": "pytorch-ddp", "worldSize": 14,
    }  # fmt: skip
    assert data["summary"] == {
        "totalCpus": 112, "totalMemoryGb": 896, "gpuTypes": ["A100"],
        "zones": ["北京可用区A", "深圳可用区C", "上海可用区A"], "crossZone": True,
    }  # fmt: skip
    codes = {warning["code"] for warning in data["warnings"]}
    assert codes == {"CROSS_ZONE", "STRATEGY_NOT_RENDERED", "EMULATED_GPUS", "MASTER_NOT_BEST"}


def test_the_documents_deepspeed_request_is_accepted_unchanged(colleague):
    request = changed(distributedConfig__framework="deepspeed")
    data = colleague.post("/training-tasks", request).data
    assert data["distributedInfo"] == {
        "nodeCount": 3, "totalGpus": 14, "masterNode": "env-001", "framework": "deepspeed", "worldSize": 14,
    }  # fmt: skip
    assert "STRATEGY_NOT_RENDERED" in {warning["code"] for warning in data["warnings"]}
    preview = colleague.post("/training-tasks/preview", request).data
    assert "ds_config.json" in {file["name"] for file in preview["files"]}


def test_a_single_environment_needs_no_distributed_config(colleague):
    request = changed(distributedConfig=None, environmentIds=["env-001"])
    data = colleague.post("/training-tasks", request).data
    assert data["distributedInfo"]["worldSize"] == 2
    assert not Task.objects.get().distributed


def test_a_created_task_keeps_what_it_was_made_from(colleague, environments):
    task_id = colleague.post("/training-tasks", DOCUMENT).data["taskId"]
    environments["env-003"].gpu_count = 1
    environments["env-003"].save()
    assert [(n.node_rank, n.environment_id, n.processes) for n in Node.objects.filter(task=task_id)] == [
        (0, "env-001", 2), (1, "env-003", 4), (2, "env-005", 8),
    ]  # fmt: skip
    shown = colleague.get(f"/training-tasks/{task_id}").data
    assert len(shown["ranks"]) == 14
    assert shown["batch"]["dataParallel"] == 14


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"taskName": ""}, {"taskName": "NAME_REQUIRED"}),
        ({"taskName": "   "}, {"taskName": "NAME_REQUIRED"}),
        ({"taskName": None}, {"taskName": "NAME_REQUIRED"}),
        ({"taskName": "x" * 101}, {"taskName": "NAME_TOO_LONG"}),
        ({"datasetId": "dataset-9"}, {"datasetId": "DATASET_UNKNOWN"}),
        ({"datasetId": None}, {"datasetId": "DATASET_UNKNOWN"}),
        ({"datasetVersionId": "version-9"}, {"datasetVersionId": "DATASET_VERSION_UNKNOWN"}),
        ({"datasetId": "dataset-other"}, {"datasetVersionId": "DATASET_VERSION_MISMATCH"}),
        ({"modelId": "model-9"}, {"modelId": "MODEL_UNKNOWN"}),
        ({"launchMode": "fleet"}, {"launchMode": "LAUNCH_MODE_UNKNOWN"}),
        ({"distributedConfig": None}, {"environmentIds": "ENVIRONMENT_REQUIRED"}),
        ({"distributedConfig__nodeIds": []}, {"distributedConfig.nodeIds": "ENVIRONMENT_REQUIRED"}),
        ({"distributedConfig__nodeIds": ["env-001", "env-001"]},
         {"distributedConfig.nodeIds.1": "ENVIRONMENT_DUPLICATE"}),
        ({"distributedConfig__nodeIds": ["env-001", "env-9"]}, {"distributedConfig.nodeIds.1": "ENVIRONMENT_UNKNOWN"}),
        ({"distributedConfig__nodeIds": ["env-001", "env-004"]},
         {"distributedConfig.nodeIds.1": "ENVIRONMENT_NOT_RUNNING"}),
        ({"distributedConfig__masterNode": None}, {"distributedConfig.masterNode": "MASTER_REQUIRED"}),
        ({"distributedConfig__masterNode": "env-002"}, {"distributedConfig.masterNode": "MASTER_NOT_SELECTED"}),
        ({"distributedConfig__framework": "caffe"}, {"distributedConfig.framework": "FRAMEWORK_UNKNOWN"}),
        ({"distributedConfig__backend": "mpi"}, {"distributedConfig.backend": "BACKEND_UNKNOWN"}),
        ({"distributedConfig__masterPort": 80}, {"distributedConfig.masterPort": "PORT_OUT_OF_RANGE"}),
        ({"distributedConfig__options": {"zero": 3}}, {"distributedConfig.options.zero": "OPTION_UNKNOWN"}),
        ({"distributedConfig": None, "environmentIds": ["env-001", "env-003"]},
         {"distributedConfig.masterNode": "MASTER_REQUIRED"}),
        ({"environmentIds": ["env-002"]}, {"environmentIds": "ENVIRONMENTS_CONTRADICT"}),
        ({"env": {"RANK": "0", "MY": "1"}}, {"env.RANK": "ENV_RESERVED"}),
        ({"hyperparameters": {"batchSize": 0}}, {"hyperparameters.batchSize": "HYPERPARAMETER_INVALID"}),
        ({"hyperparameters": {"batch": 8}}, {"hyperparameters.batch": "HYPERPARAMETER_UNKNOWN"}),
        ({"entrypoint": {"script": "nowhere.py"}}, {"entrypoint.script": "ENTRYPOINT_NOT_FOUND"}),
        ({"maxRestarts": -1}, {"maxRestarts": "MAX_RESTARTS_OUT_OF_RANGE"}),
        ({"resumeFrom": "/nowhere.pt"}, {"resumeFrom": "RESUME_NOT_FOUND"}),
        ({"taskname": "x"}, {"taskname": "UNKNOWN_FIELD"}),
        ({"priority": "soon"}, {"priority": "FIELD_CHOICE"}),
        ({"distributedConfig__nodeIds": "env-001"}, {"distributedConfig.nodeIds": "FIELD_INVALID"}),
        ({"distributedConfig": [], "datasetId": 1},
         {"distributedConfig": "FIELD_INVALID", "datasetId": "WRONG_TYPE"}),
        ({"distributedConfig__framework": "", "distributedConfig__masterPort": "1", "maxRestarts": -1,
          "hyperparameters": {"batch": 8}, "env": {"RANK": "0"}, "entrypoint": None, "taskName": ""},
         {"distributedConfig.framework": "FRAMEWORK_REQUIRED", "distributedConfig.masterPort": "WRONG_TYPE",
          "maxRestarts": "MAX_RESTARTS_OUT_OF_RANGE", "hyperparameters.batch": "HYPERPARAMETER_UNKNOWN",
          "env.RANK": "ENV_RESERVED", "taskName": "NAME_REQUIRED"}),
        ({"distributedConfig__framework": " ", "distributedConfig__options": {"zero": 3}, "resumeFrom": "/nowhere"},
         {"distributedConfig.framework": "FRAMEWORK_REQUIRED", "resumeFrom": "RESUME_NOT_FOUND"}),
        ({"distributedConfig": None, "hyperparameters": {"batch": 8}},
         {"environmentIds": "ENVIRONMENT_REQUIRED", "hyperparameters.batch": "HYPERPARAMETER_UNKNOWN"}),
        ({"entrypoint": 3, "datasetId": None, "datasetVersionId": None, "modelId": None},
         {"entrypoint": "FIELD_INVALID"}),
        ({"distributedConfig__worldSize": "8", "distributedConfig__framework": "megatron-lm",
          "distributedConfig__strategy": {"dataParallel": 8}},
         {"distributedConfig.worldSize": "WRONG_TYPE", "distributedConfig.framework": "FRAMEWORK_NEEDS_CUDA"}),
        ({"hyperparameters": [1]}, {"hyperparameters": "FIELD_INVALID"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("language", ["zh-CN", "en"])
def test_an_invalid_request_is_refused_with_its_code_and_creates_nothing(colleague, changes, problems, language):
    from apps.catalog.models import Dataset

    Dataset.objects.create(pk="dataset-other", name="other")
    colleague.lang = language
    answer = colleague.post("/training-tasks", changed(**changes))
    assert answer.status == 400
    assert answer.problems == problems
    for problem in answer.body["errors"]:
        assert problem["message"]
        assert ("zh" in language) == any("\u4e00" <= letter <= "\u9fff" for letter in problem["message"])
    assert Task.objects.count() == 0


def test_a_missing_choice_has_the_documents_message(colleague):
    asked = {"distributedConfig": {"nodeIds": ["env-001", "env-003"], "masterNode": "env-9", "framework": None}}
    said = {one["message"] for one in colleague.post("/training-tasks", asked).body["errors"]}
    assert said >= {"请输入任务名称", "请选择数据集", "请选择有效的主节点", "请选择分布式框架"}
    said = {one["message"] for one in colleague.post("/training-tasks", {}).body["errors"]}
    assert said >= {"请输入任务名称", "请选择数据集", "请至少选择一个开发环境"}


def test_all_problems_are_reported_together(colleague):
    request = changed(
        taskName="", datasetId="?", modelId="?", launchMode="?", maxRestarts=1000, env={"RANK": "1"},
        distributedConfig__nodeIds=["env-001", "env-004", "env-9"], distributedConfig__masterPort=1,
    )  # fmt: skip
    assert len(colleague.post("/training-tasks", request).problems) == 9


def test_problems_come_in_the_order_of_the_form(colleague):
    """Name, dataset, version, environments, master, framework (document 004, "提交验证"), then the rest."""
    request = changed(
        maxRestarts=1000, taskName="", datasetId="?", datasetVersionId="?", typoHere=1, modelId="?",
        distributedConfig__framework="caffe", distributedConfig__masterNode="env-9",
    )  # fmt: skip
    found = [one["field"] for one in colleague.post("/training-tasks", request).body["errors"]]
    assert found[:4] == ["taskName", "datasetId", "distributedConfig.masterNode", "distributedConfig.framework"]
    assert set(found[4:]) == {"maxRestarts", "typoHere", "modelId"}


def test_the_comment_in_the_documents_request_is_named(colleague):
    text = '{\n  "taskName": "t",\n  "distributedConfig": {\n    "enabled": true,\n    // 以下为分布式配置\n    "master'
    answer = colleague.post("/training-tasks", text.encode())
    assert (answer.status, answer.error) == (400, "JSON_COMMENT")
    assert "5" in answer.body["message"]
    assert "// 以下为分布式配置" in answer.body["message"]


@pytest.mark.parametrize(
    ("changes", "nearest"),
    [
        ({"taskname": "x"}, "taskName"),
        ({"distributedConfig__maxRestart": 3}, "maxRestarts"),  # of another object of the same request
        ({"distributedConfig__maxRestarts": 3}, "maxRestarts"),
        ({"masterPort": 29500}, "distributedConfig.masterPort"),
        ({"entrypoint": {"script": "train.py", "argv": []}}, "entrypoint.args"),
        ({"typoHere": 1}, None),
    ],
)
@pytest.mark.parametrize("path", ["/training-tasks", "/training-tasks/preview"])
def test_an_unknown_field_names_the_nearest_path(colleague, path, changes, nearest):
    colleague.lang = "en"
    answer = colleague.post(path, changed(**changes))
    problems = answer.data["problems"] if answer.status == 200 else answer.body["errors"]
    [hint] = [one["hint"] for one in problems if one["error"] == "UNKNOWN_FIELD"]
    assert hint.startswith(f"Did you mean {nearest}?" if nearest else "Known fields: ")


def test_environments_of_two_projects_are_refused_together(admin, environments, other_project):
    environments["env-003"].project = other_project
    environments["env-003"].save()
    assert admin.post("/training-tasks", DOCUMENT).problems == {"distributedConfig.nodeIds.1": "ENVIRONMENT_FOREIGN"}


def test_a_cordoned_environment_is_refused(colleague, environments):
    environments["env-003"].cordoned = True
    environments["env-003"].save()
    answer = colleague.post("/training-tasks", DOCUMENT)
    assert answer.problems == {"distributedConfig.nodeIds.1": "ENVIRONMENT_CORDONED"}


def test_only_members_create_tasks(colleague, owner, viewer, stranger, anonymous):
    assert owner.post("/training-tasks", DOCUMENT).status == 201
    assert viewer.post("/training-tasks", DOCUMENT).error == "FORBIDDEN"
    assert set(stranger.post("/training-tasks", DOCUMENT).problems.values()) >= {"ENVIRONMENT_UNKNOWN"}
    assert anonymous.post("/training-tasks", DOCUMENT).error == "NOT_AUTHENTICATED"
    assert Task.objects.count() == 1


def test_the_same_idempotency_key_and_request_give_the_same_task(colleague, owner):
    first = colleague.post("/training-tasks", DOCUMENT, Idempotency_Key="k1")
    again = colleague.post("/training-tasks", DOCUMENT, Idempotency_Key="k1")
    other = colleague.post("/training-tasks", changed(taskName="other"), Idempotency_Key="k1")
    elsewhere = owner.post("/training-tasks", DOCUMENT, Idempotency_Key="k1")
    assert (first.status, again.status) == (201, 201)
    assert again.data["taskId"] == first.data["taskId"]
    assert (other.status, other.error) == (409, "IDEMPOTENCY_CONFLICT")
    assert elsewhere.data["taskId"] != first.data["taskId"]
    assert Event.objects.filter(code="TASK_CREATED").count() == 2


def test_preview_shows_what_would_run_and_creates_nothing(colleague):
    data = colleague.post("/training-tasks/preview", DOCUMENT).data
    assert [rank["rank"] for rank in data["ranks"]] == list(range(14))
    assert [rank["environmentId"] for rank in data["ranks"]] == ["env-001"] * 2 + ["env-003"] * 4 + ["env-005"] * 8
    assert data["ranks"][2]["env"]["LOCAL_RANK"] == "0"
    assert data["ranks"][2]["env"]["WORLD_SIZE"] == "14"
    assert data["ranks"][2]["env"]["MASTER_ADDR"] == "<head host>"
    assert [file["name"] for file in data["files"]] == ["pytorch_ddp_config.yaml"]
    assert "--total_steps" in data["command"]
    assert data["problems"] == []
    assert data["batch"]["effective"] == data["batch"]["perRank"] * 14
    assert Task.objects.count() == 0


@pytest.mark.parametrize("language", ["zh-CN", "en"])
def test_preview_tells_a_viewer_that_the_request_would_be_refused(viewer, colleague, language):
    viewer.lang = language
    data = viewer.post("/training-tasks/preview", DOCUMENT).data
    (problem,) = data["problems"]
    assert (problem["field"], problem["error"]) == ("distributedConfig.nodeIds", "MEMBER_REQUIRED")
    assert "one" in problem["message"]
    assert problem["hint"]
    assert len(data["ranks"]) == 14
    assert colleague.post("/training-tasks/preview", DOCUMENT).data["problems"] == []


def test_preview_shows_problems_and_the_rest_of_the_plan(colleague):
    data = colleague.post("/training-tasks/preview", changed(taskName="", env={"RANK": "1"})).data
    assert {problem["error"] for problem in data["problems"]} == {"NAME_REQUIRED", "ENV_RESERVED"}
    assert len(data["ranks"]) == 14
    empty = colleague.post("/training-tasks/preview", {}).data
    assert empty["ranks"] == []
    assert len(empty["problems"]) == 3


@pytest.mark.parametrize(
    ("framework", "changes", "problems"),
    [
        ("deepspeed", {"options": {"zeroStage": 9}}, {"distributedConfig.options.zeroStage": "OPTION_INVALID"}),
        ("deepspeed", {"options": {"config": {"nonsense": 1}}},
         {"distributedConfig.options.config.nonsense": "DEEPSPEED_KEY_UNKNOWN"}),
        ("pytorch-ddp", {"strategy": {"dataParallel": "many"}},
         {"distributedConfig.strategy.dataParallel": "WRONG_TYPE"}),
        ("pytorch-ddp", {"masterPort": "high", "options": {"bucketCapMb": 0}},
         {"distributedConfig.masterPort": "WRONG_TYPE", "distributedConfig.options.bucketCapMb": "OPTION_INVALID"}),
    ],
)  # fmt: skip
def test_one_invalid_value_leaves_the_rest_of_the_preview(colleague, framework, changes, problems):
    config = {**DOCUMENT["distributedConfig"], "framework": framework, **changes}
    answer = colleague.post("/training-tasks/preview", changed(distributedConfig=config))
    assert {problem["field"]: problem["error"] for problem in answer.data["problems"]} == problems
    assert len(answer.data["ranks"]) == 14
    assert answer.data["files"]
    assert answer.data["artifacts"]
    assert colleague.post("/training-tasks", changed(distributedConfig=config)).problems == problems


def test_wrong_types_and_broken_rules_are_reported_together(colleague):
    answer = colleague.post("/training-tasks", changed(taskName="", priority=0.5, maxRestarts=-1, env={"RANK": "1"}))
    assert answer.problems == {
        "priority": "WRONG_TYPE",
        "taskName": "NAME_REQUIRED",
        "maxRestarts": "MAX_RESTARTS_OUT_OF_RANGE",
        "env.RANK": "ENV_RESERVED",
    }
    (problem,) = [each for each in answer.body["errors"] if each["field"] == "priority"]
    assert problem["message"] == "应为整数，不小于 -1000 且不大于 1000，收到的是 0.5。"


OWN_SCRIPT = {
    "datasetId": None, "datasetVersionId": None, "modelId": None, "entrypoint": {"script": "train.py", "args": []},
}  # fmt: skip


@pytest.fixture
def script(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").touch()


def test_a_custom_script_needs_neither_dataset_nor_model(colleague, script):
    request = {**DOCUMENT, **OWN_SCRIPT}
    task_id = colleague.post("/training-tasks", request).data["taskId"]
    task = Task.objects.get()
    assert (task.dataset_version, task.model, task.spec["train_data"]) == (None, None, "")
    detail = colleague.get(f"/training-tasks/{task_id}").data
    assert detail["datasetId"] is detail["datasetVersionId"] is detail["modelId"] is None
    assert colleague.get("/training-tasks").data["total"] == 1
    reconciler.reconcile_tasks(task_id)
    task.refresh_from_db()
    assert task.state != TaskState.INITIALIZING, "there is no data to wait for"


def test_without_a_script_a_dataset_is_required(colleague):
    answer = colleague.post("/training-tasks", {**DOCUMENT, **OWN_SCRIPT, "entrypoint": None})
    assert answer.problems == {"datasetId": "DATASET_UNKNOWN"}
    answer = colleague.post("/training-tasks", changed(datasetId=None))
    assert answer.problems == {"datasetId": "DATASET_UNKNOWN"}


@pytest.mark.parametrize("given", [{"modelId": None}, {"modelId": ""}, {}])
def test_without_a_model_the_reference_model_is_trained_with_a_notice(colleague, given):
    request = {name: value for name, value in DOCUMENT.items() if name != "modelId"} | given
    shown = colleague.post("/training-tasks/preview", request).data
    assert "MODEL_NOT_CHOSEN" in {one["code"] for one in shown["warnings"]}
    created = colleague.post("/training-tasks", request)
    assert created.status == 201
    task = Task.objects.get()
    assert (task.model, task.spec["recipe"]) == (None, "gpt")
    assert colleague.get(f"/training-tasks/{task.pk}").data["modelName"] is None


def test_a_smaller_world_size_takes_the_first_ranks(colleague):
    request = changed(distributedConfig__worldSize=5)
    data = colleague.post("/training-tasks", request).data
    assert (data["distributedInfo"]["worldSize"], data["distributedInfo"]["nodeCount"]) == (5, 2)
    assert list(Node.objects.values_list("environment_id", "processes")) == [("env-001", 2), ("env-003", 3)]
    for size in (0, 15):
        answer = colleague.post("/training-tasks", changed(distributedConfig__worldSize=size))
        assert answer.problems == {"distributedConfig.worldSize": "WORLD_SIZE_TOO_LARGE"}


def test_a_gpt_2_dataset_needs_the_gpt_2_vocabulary(colleague):
    DatasetVersion.objects.update(largest_token=50_256)
    [problem] = colleague.post("/training-tasks", DOCUMENT).body["errors"]
    assert (problem["field"], problem["error"]) == ("hyperparameters.vocabSize", "TOKENS_BEYOND_VOCABULARY")
    assert "50304" in problem["hint"]
    assert colleague.post("/training-tasks", changed(hyperparameters={"vocabSize": 50_304})).status == 201
    own = changed(entrypoint={"script": "/scripts/train.py"})
    assert "TOKENS_BEYOND" not in str(colleague.post("/training-tasks/preview", own).data["problems"])
