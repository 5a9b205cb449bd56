import { expect, test } from "vitest";
import type { CreateRequest } from "@/api/types";
import { bindParameters, listArguments } from "./arguments";
import {
  applyFile,
  buildSweep,
  createParameter,
  EMPTY_SWEEP,
  getControlName,
  listProposals,
  listRepeated,
  pickTrialRequest,
  proposeParameter,
} from "./draft";
import { formatValues, parseValues } from "./values";

const SCRIPT: Partial<CreateRequest> = {
  taskName: "base",
  environmentIds: ["env-1"],
  entrypoint: {
    script: "train.py",
    args: ["data.csv", "--lr", "0.001", "--layers=4", "optimizer=adam", "--amp", "--seed", "-1"],
  },
};
const getArgs = (request: Partial<CreateRequest>) => request.entrypoint?.args;
const passed = (...names: string[]) => names.map((name) => ({ name, conditional: false }));

test("values are read as they are written", () => {
  const values = ["adam", 'a, "b"', "1", 1, 1e-5, true, "true", "", " x", "a\nb"];
  expect(parseValues(formatValues(values))).toEqual(values);
  expect(parseValues("adam, sgd,\n0.5")).toEqual(["adam", "sgd", 0.5]);
  expect(parseValues("  ")).toEqual([]);
  expect(parseValues("a,,b,")).toEqual(["a", "b"]);
});

test("parameters are found in a script's arguments", () => {
  expect(listArguments(SCRIPT).map(({ name, value }) => [name, value])).toEqual([
    ["lr", 0.001],
    ["layers", 4],
    ["optimizer", "adam"],
    ["amp", true],
    ["seed", -1],
  ]);
});

test("parameters take the places of their values among the arguments", () => {
  expect(getArgs(bindParameters(SCRIPT, passed("lr", "layers", "optimizer"), "flags"))).toEqual([
    "data.csv",
    "--lr",
    "{lr}",
    "--layers={layers}",
    "optimizer={optimizer}",
    "--amp",
    "--seed",
    "-1",
  ]);
  expect(bindParameters(SCRIPT, [], "flags")).toBe(SCRIPT);
});

test("a parameter with a condition is one word, which a trial without it does not have", () => {
  const args = getArgs(bindParameters(SCRIPT, [{ name: "lr", conditional: true }], "flags"));
  expect(args?.slice(0, 3)).toEqual(["data.csv", "--lr={lr}", "--layers=4"]);
});

test("what the arguments lack is added as was chosen", () => {
  const last = (passing: "flags" | "pairs" | "variables") =>
    getArgs(bindParameters(SCRIPT, passed("lr", "dropout"), passing))?.at(-1);
  expect(last("flags")).toBe("--dropout={dropout}");
  expect(last("pairs")).toBe("dropout={dropout}");
  expect(last("variables")).toBe("-1");
});

test("with a switch, all parameters are flags together", () => {
  expect(getArgs(bindParameters(SCRIPT, passed("amp", "lr"), "flags"))).toEqual([
    "data.csv",
    "--layers=4",
    "optimizer=adam",
    "--seed",
    "-1",
    "${sweep.flags}",
  ]);
});

test("arguments that have room for parameters stay as they are", () => {
  for (const args of [["${sweep.args}"], ["--rate", "{lr}"]]) {
    const request = { entrypoint: { script: "train.py", args } };
    expect(bindParameters(request, passed("lr"), "flags")).toBe(request);
  }
});

test("a command gets parameters as a script does", () => {
  const request = { entrypoint: { command: ["torchrun", "train.py", "--lr", "1"] } };
  const bound = bindParameters(request, passed("lr", "wd"), "pairs");
  expect(bound.entrypoint).toEqual({ command: ["torchrun", "train.py", "--lr", "{lr}", "wd={wd}"] });
});

test("a task's parameters are proposed with ranges around their values", () => {
  const request = { ...SCRIPT, hyperparameters: { lr: 5, warmup: 100, name: "x" } };
  const proposals = listProposals(request, { learningRate: 1 });
  expect(proposals.map(({ name }) => name)).toEqual(["lr", "layers", "optimizer", "amp", "seed", "warmup", "name"]);
  const [lr, layers, optimizer, amp, , warmup] = proposals.map(proposeParameter);
  expect(lr).toMatchObject({ kind: "float", min: "0.0001", max: "0.01", log: true });
  expect(layers).toMatchObject({ kind: "int", min: "2", max: "8", log: false });
  expect(optimizer).toMatchObject({ kind: "values", values: "adam" });
  expect(amp).toMatchObject({ kind: "values", values: "true, false" });
  expect(warmup).toMatchObject({ kind: "int", min: "50", max: "200", log: true });
  expect(listProposals({ modelId: "m" }, { learningRate: 0.01 })).toEqual([{ name: "learningRate", value: 0.01 }]);
});

test("a sweep is built with trials that fill gaps and are preemptible", () => {
  const start = pickTrialRequest({ ...SCRIPT, priority: "urgent", preemptible: false, resumeFrom: "/ckpt/1" });
  const draft = {
    ...EMPTY_SWEEP,
    name: "rates",
    metric: "accuracy",
    request: start,
    parameters: [
      createParameter("lr", { kind: "float", min: "1e-5", max: "x", log: true }),
      createParameter("momentum", { values: "0.5, 0.9", conditions: [{ name: "optimizer", values: "sgd" }] }),
      createParameter("epochs", { kind: "value", values: "3" }),
    ],
  };
  const body = buildSweep(draft, "maximize");
  expect(body.objective).toEqual({ metric: "accuracy", goal: "maximize", value: "best" });
  expect(body.parameters).toEqual({
    lr: { min: 1e-5, max: "x", scale: "log" },
    momentum: { values: [0.5, 0.9], when: { optimizer: ["sgd"] } },
    epochs: { value: 3 },
  });
  expect(body.request).toMatchObject({ priority: "low", preemptible: true });
  expect(body.request).not.toHaveProperty("resumeFrom");
  expect(body.pruning).toBeUndefined();
  expect(body).toMatchObject({ parallel: 4, budget: { trials: 20 }, method: "tpe" });
});

test("a file fills in the form, and is what the form then builds", () => {
  const file = {
    name: "rates",
    objective: { metric: "val_loss", goal: "minimize", value: "last", target: 0.1 },
    method: "random",
    parameters: {
      lr: { min: 1e-5, max: 0.1, scale: "log" },
      layers: { min: 2, max: 8, step: 2, type: "int" },
      optimizer: { values: ["adam", "sgd"] },
      momentum: { min: 0.5, max: 0.9, when: { optimizer: ["sgd"] } },
      epochs: { value: 3 },
    },
    pruning: { method: "asha", minSteps: 10, maxSteps: 90, reduction: 3 },
    budget: { trials: 30, gpuHours: 2.5 },
    parallel: 2,
    request: { entrypoint: { script: "other.py", args: ["${sweep.args}"] }, resumeFrom: "/ckpt/base" },
  };
  const body = buildSweep(applyFile({ ...EMPTY_SWEEP, request: SCRIPT }, file), undefined);
  expect(body).toEqual({
    ...file,
    request: { ...SCRIPT, ...file.request, priority: "low", preemptible: true },
  });
  for (const odd of [{}, { parameters: [], objective: 5, budget: "x", request: 3 }, { parameters: { a: 5 } }])
    expect(() => buildSweep(applyFile(EMPTY_SWEEP, odd), undefined)).not.toThrow();
});

test("a problem belongs to the control of its parameter", () => {
  const parameters = [createParameter("a"), createParameter("a.b"), createParameter("")];
  const [first, second, third] = parameters.map(({ key }) => `parameters.${key}`);
  expect(getControlName("parameters.a.min", parameters)).toBe(`${first}.min`);
  expect(getControlName("parameters.a.b.values.0", parameters)).toBe(`${second}.values`);
  expect(getControlName("parameters.", parameters)).toBe(third);
  expect(getControlName("parameters.c", parameters)).toBe("parameters.c");
  expect(getControlName("budget.trials", parameters)).toBe("budget.trials");
  const again = createParameter(" a ");
  expect(listRepeated([...parameters, again])).toEqual([again]);
});
