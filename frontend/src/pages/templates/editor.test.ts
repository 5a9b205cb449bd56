import { expect, test } from "vitest";
import {
  buildDraft,
  buildParameters,
  buildRequest,
  findPlaceholders,
  type Json,
  listFields,
  proposeParameter,
  removeParameter,
} from "./editor";
import { template } from "./fixtures";

const request: Json = {
  taskName: "train",
  projectId: "project-1",
  datasetId: "dataset-1",
  datasetVersionId: "version-1",
  environmentIds: ["env-1", "env-2"],
  masterNode: null,
  entrypoint: { script: "train.py", args: ["--lr=0.1", "--epochs", "3"] },
  after: [{ task: "task-1" }],
};

const propose = (path: string, taken: string[] = []) => {
  const field = listFields(request).find((each) => each.path === path);
  if (!field) throw new Error(path);
  return proposeParameter(request, field, 0, taken);
};

test("fields are the values of a request; lists of environments are one", () => {
  expect(listFields(request).map(({ path }) => path)).toEqual([
    "taskName",
    "datasetId",
    "datasetVersionId",
    "environmentIds",
    "entrypoint.script",
    "entrypoint.args.0",
    "entrypoint.args.1",
    "entrypoint.args.2",
  ]);
});

test("a parameter is named after its option and has the present value as its default", () => {
  expect(propose("entrypoint.args.0")).toMatchObject({ name: "lr", type: "number", usual: "0.1" });
  expect(propose("entrypoint.args.2")).toMatchObject({ name: "epochs", type: "integer", usual: "3" });
  expect(propose("environmentIds")).toMatchObject({ name: "environments", type: "environments", usual: "env-1,env-2" });
  expect(propose("datasetVersionId", ["data"])).toMatchObject({ name: "data_2", type: "datasetVersion" });
});

test("placeholders stand where the values were, and in front of them what belongs to the option", () => {
  const parameters = ["entrypoint.args.0", "entrypoint.args.2", "datasetVersionId"].map((path) => propose(path));
  const built = buildRequest(request, parameters);
  expect(built.entrypoint).toEqual({ script: "train.py", args: ["--lr={{lr}}", "--epochs", "{{epochs}}"] });
  expect([built.datasetId, built.datasetVersionId]).toEqual(["{{data.dataset}}", "{{data}}"]);
  expect(buildParameters(parameters)[0]).toEqual({ name: "lr", type: "number", label: "", help: "", default: 0.1 });
});

test("a stored parameter that is removed leaves its default in the request", () => {
  const stored = template.parameters.map(buildDraft);
  const [lr, note, where] = stored;
  if (!lr || !note || !where) throw new Error();
  const none = new Map<string, string>();
  const left = removeParameter(template.request as Json, lr, none);
  expect(left.hyperparameters).toEqual({ learningRate: 0.001 });
  expect(removeParameter(left, where, none).environmentIds).toEqual(["env-1"]);
  expect(findPlaceholders(left.taskName)).toEqual(["note"]);
  expect(removeParameter(left, { ...note, usual: "x" }, none).taskName).toBe("night-x");
  const data = { ...note, name: "data", type: "datasetVersion" as const, usual: "version-1" };
  expect(
    removeParameter({ a: "{{data}}", b: "{{data.dataset}}" }, data, new Map([["version-1", "dataset-1"]])),
  ).toEqual({ a: "version-1", b: "dataset-1" });
});
