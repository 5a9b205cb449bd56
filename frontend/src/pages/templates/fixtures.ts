import type { SavedTemplate, TemplateParameter } from "@/api/types";

export function parameter(name: string, over: Partial<TemplateParameter> = {}): TemplateParameter {
  return { name, type: "string", label: name, help: "", default: null, low: null, high: null, choices: [], ...over };
}

export const template: SavedTemplate = {
  id: "saved-1",
  name: "nightly",
  description: "每晚训练",
  projectId: "project-1",
  request: {
    taskName: "night-{{note}}",
    environmentIds: "{{where}}",
    hyperparameters: { learningRate: "{{lr}}" },
  },
  parameters: [
    parameter("lr", { type: "number", label: "学习率", default: 0.001, low: 0, high: 1 }),
    parameter("note", { label: "名称" }),
    parameter("where", { type: "environments", label: "环境", default: ["env-1"] }),
  ],
  version: 2,
  lastUsedAt: "2026-11-21T05:00:00Z",
  lastTaskId: "task-1",
  createdBy: "bo",
  createdAt: "2026-11-20T05:00:00Z",
  updatedAt: "2026-11-20T05:00:00Z",
  mayChange: true,
};
