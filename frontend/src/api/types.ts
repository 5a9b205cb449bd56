import type { paths } from "./schema";

type ResponseData<P extends keyof paths, M extends keyof paths[P], S extends number = 200> = paths[P][M] extends {
  responses: Record<S, { content: { "application/json": { data: infer Data } } }>;
}
  ? Data
  : never;
type Item<T> = T extends { items: (infer I)[] } ? I : never;
type Body<P extends keyof paths, M extends keyof paths[P]> = paths[P][M] extends {
  requestBody?: { content: { "application/json": infer B } };
}
  ? B
  : never;
type Query<P extends keyof paths> = paths[P] extends { get: { parameters: { query?: infer Q } } }
  ? NonNullable<Q>
  : never;
type Ordering<P extends keyof paths> = paths[P] extends { get: { parameters: { query?: { ordering?: infer O } } } }
  ? NonNullable<O>
  : never;

export type Me = ResponseData<"/api/v1/auth/me", "get">;
export type Environment = Item<ResponseData<"/api/v1/dev-environments", "get">>;
export type Dataset = Item<ResponseData<"/api/v1/datasets", "get">>;
export type Model = Item<ResponseData<"/api/v1/models", "get">>;
export type Zone = Item<ResponseData<"/api/v1/availability-zones", "get">>;
export type DatasetVersion = Dataset["versions"][number];
export type Token = Item<ResponseData<"/api/v1/tokens", "get">>;
export type TokenRequest = Body<"/api/v1/tokens", "post">;
export type ProjectToken = Item<ResponseData<"/api/v1/projects/{project_id}/tokens", "get">>;
export type ServiceAccount = Item<ResponseData<"/api/v1/projects/{project_id}/service-accounts", "get">>;
export type ExchangeRule = Item<ResponseData<"/api/v1/projects/{project_id}/exchange-rules", "get">>;
export type ExchangeRuleRequest = Body<"/api/v1/projects/{project_id}/exchange-rules", "post">;
export type ExchangeRuleChange = Body<"/api/v1/projects/{project_id}/exchange-rules/{rule_id}", "patch">;
export type Project = Item<ResponseData<"/api/v1/projects", "get">>;
export type BrowserSession = Item<ResponseData<"/api/v1/sessions", "get">>;
export type Person = Item<ResponseData<"/api/v1/people", "get">>;
export type PeopleOrdering = Ordering<"/api/v1/people">;
export type Invitation = ResponseData<"/api/v1/people/{username}/invitation", "post", 201>;
export type Member = Item<ResponseData<"/api/v1/projects/{project_id}/members", "get">>;
export type Secret = Item<ResponseData<"/api/v1/projects/{project_id}/secrets", "get">>;
export type Recommendation = ResponseData<"/api/v1/frameworks/recommend", "post">;
export type RecommendedFramework = Item<Recommendation>;
export type Framework = Item<ResponseData<"/api/v1/frameworks", "get">>;
export type TaskTemplate = Item<ResponseData<"/api/v1/task-templates", "get">>;
export type TaskOrdering = Ordering<"/api/v1/training-tasks">;
export type WorkerOrdering = Ordering<"/api/v1/workers">;
export type EnvironmentOrdering = Ordering<"/api/v1/dev-environments">;
export type TaskBrief = Item<ResponseData<"/api/v1/training-tasks", "get">>;
export type Task = ResponseData<"/api/v1/training-tasks/{task_id}", "get">;
export type Diagnosis = ResponseData<"/api/v1/training-tasks/{task_id}/diagnosis", "get">;
export type DiagnosisFinding = Diagnosis["findings"][number];
export type SuggestedAction = DiagnosisFinding["actions"][number];
export type CreateRequest = Body<"/api/v1/training-tasks", "post">;
export type Preview = ResponseData<"/api/v1/training-tasks/preview", "post">;
export type LaunchCommand = ResponseData<"/api/v1/training-tasks/launch-command", "post">;
export type RunsIn = NonNullable<Preview["environments"][number]["runsIn"]>;
export type Scaling = NonNullable<Preview["scaling"]>;
export type Plan = ResponseData<"/api/v1/training-tasks/{task_id}/plan", "get">;
export type TaskEvent = Item<ResponseData<"/api/v1/training-tasks/{task_id}/events", "get">>;
export type Metric = Item<ResponseData<"/api/v1/training-tasks/{task_id}/metrics", "get">>;
export type Checkpoint = Item<ResponseData<"/api/v1/training-tasks/{task_id}/checkpoints", "get">>;
export type Worker = Item<ResponseData<"/api/v1/workers", "get">>;
export type JoinToken = Item<ResponseData<"/api/v1/workers/join-tokens", "get">>;
export type JoinTokenCreated = ResponseData<"/api/v1/workers/join-tokens", "post", 201>;
export type WorkerGroup = Item<ResponseData<"/api/v1/worker-groups", "get">>;
export type WorkerGroupRequest = Body<"/api/v1/worker-groups", "post">;
export type WorkerGroupChange = Body<"/api/v1/worker-groups/{group_id}", "patch">;
export type PreflightBrief = Item<ResponseData<"/api/v1/preflights", "get">>;
export type RunPage = ResponseData<"/api/v1/runs", "get">;
export type Run = Item<RunPage>;
/** A value of a run in a column; several (`tag`, `zone`) are one text, with commas. */
export type RunValue = Run["values"][string];
export type RunColumn = Item<ResponseData<"/api/v1/runs/columns", "get">>;
export type RunCompletion = ResponseData<"/api/v1/runs/complete", "get">;
export type RunCompletionItem = Item<RunCompletion>;
export type RunGroup = Item<ResponseData<"/api/v1/runs/groups", "get">>;
export type RunFigures = RunGroup["values"][string];
export type RunSearch = Omit<Query<"/api/v1/runs">, "cursor" | "pageSize">;
export type RunChange = Body<"/api/v1/runs/{task_id}", "patch">;
export type RunBulkRequest = Body<"/api/v1/runs/bulk", "post">;
export type RunView = Item<ResponseData<"/api/v1/run-views", "get">>;
export type RunViewRequest = Body<"/api/v1/run-views", "post">;
export type RunViewChange = Body<"/api/v1/run-views/{view_id}", "patch">;
export type SweepItem = Item<ResponseData<"/api/v1/sweeps", "get">>;
export type Sweep = ResponseData<"/api/v1/sweeps/{sweep_id}", "get">;
export type SweepTrial = Item<ResponseData<"/api/v1/sweeps/{sweep_id}/trials", "get">>;
export type SweepBody = Body<"/api/v1/sweeps", "post">;
export type SweepPreview = ResponseData<"/api/v1/sweeps/preview", "post">;
export type SavedTemplate = ResponseData<"/api/v1/saved-templates/{template_id}", "get">;
export type TemplateParameter = SavedTemplate["parameters"][number];
export type SavedTemplateRequest = Body<"/api/v1/saved-templates", "post">;
export type SavedTemplateChange = Body<"/api/v1/saved-templates/{template_id}", "patch">;
export type TemplateRunRequest = Body<"/api/v1/saved-templates/{template_id}/tasks", "post">;
export type TemplatePreview = ResponseData<"/api/v1/saved-templates/{template_id}/preview", "post">;
export type Schedule = ResponseData<"/api/v1/schedules/{schedule_id}", "get">;
export type ScheduleRequest = Body<"/api/v1/schedules", "post">;
export type ScheduleChange = Body<"/api/v1/schedules/{schedule_id}", "patch">;
export type ScheduleRun = Item<ResponseData<"/api/v1/schedules/{schedule_id}/runs", "get">>;
export type Preflight = ResponseData<"/api/v1/preflights/{preflight_id}", "get">;
export type PreflightRequest = Body<"/api/v1/preflights", "post">;
export type Drill = ResponseData<"/api/v1/drills/{drill_id}", "get">;
export type QueuedTask = Item<ResponseData<"/api/v1/queue", "get">>;
export type TimelineEnvironment = ResponseData<"/api/v1/environments/timeline", "get">["environments"][number];
export type Reservation = Item<ResponseData<"/api/v1/reservations", "get">>;
export type ReservationRequest = Body<"/api/v1/reservations", "post">;
export type Limits = ResponseData<"/api/v1/projects/{project_id}/limits", "get">;
export type LimitsRequest = Body<"/api/v1/projects/{project_id}/limits", "put">;
export type UserLimits = Item<ResponseData<"/api/v1/projects/{project_id}/limits/users", "get">>;
export type UserLimitsRequest = Body<"/api/v1/projects/{project_id}/limits/users/{username}", "put">;
export type PriceList = ResponseData<"/api/v1/prices", "get">;
export type PriceRequest = NonNullable<Body<"/api/v1/prices", "put">>["prices"][number];
export type Usage = ResponseData<"/api/v1/usage", "get">;
export type Overview = ResponseData<"/api/v1/overview", "get">;
export type Attention = ResponseData<"/api/v1/overview/attention", "get">;
export type Telemetry = ResponseData<"/api/v1/training-tasks/{task_id}/telemetry", "get">;
export type EnvironmentTelemetry = ResponseData<"/api/v1/dev-environments/{environment_id}/telemetry", "get">;
export type LogPage = ResponseData<"/api/v1/training-tasks/{task_id}/logs", "get">;

export type TelemetrySeries = Telemetry["series"][number];
export type MachineUse = EnvironmentTelemetry["tasks"][number];
export type Action = Task["allowedActions"][number];
export type Status = TaskBrief["status"];
export type Rank = Task["ranks"][number];
export type RankProgress = ResponseData<"/api/v1/training-tasks/{task_id}/pulses", "get">["ranks"][number];
export type RankUsage = ResponseData<"/api/v1/training-tasks/{task_id}/telemetry/now", "get">["ranks"][number];
export type TaskNode = Task["nodes"][number];
export type Attempt = Task["attempts"][number];
export type Problem = Preview["problems"][number];
export type Notice = Preview["warnings"][number];
export type Finding = Preflight["nodes"][number]["findings"][number];
export type Level = Preflight["nodes"][number]["level"];
export type RenderedFile = Preview["files"][number];
export type PriorityClass = QueuedTask["priority"];
export type Span = TimelineEnvironment["spans"][number];
export type GpuCounts = Overview["gpus"];
export type AttentionKind = Attention["kinds"][number]["kind"];
export type Price = PriceList["prices"][number];
export type InboxItem = Item<ResponseData<"/api/v1/inbox", "get">>;
export type NoticeChannel = Item<ResponseData<"/api/v1/notice-channels", "get">>;
export type NoticeChannelCreated = ResponseData<"/api/v1/notice-channels", "post", 201>;
export type NoticeChannelRequest = Body<"/api/v1/notice-channels", "post">;
export type NoticeChannelChange = Body<"/api/v1/notice-channels/{channel_id}", "patch">;
export type NoticeDelivery = Item<ResponseData<"/api/v1/notice-channels/{channel_id}/deliveries", "get">>;
export type NoticeRule = Item<ResponseData<"/api/v1/notice-rules", "get">>;
export type NoticeRuleRequest = Body<"/api/v1/notice-rules", "post">;
export type NoticeRuleChange = Body<"/api/v1/notice-rules/{rule_id}", "patch">;
export type EnvironmentInUse = Preview["inUse"][number];
export type MemoryHolder = EnvironmentInUse["processes"][number];
