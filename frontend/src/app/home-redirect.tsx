import { Navigate, useLocation } from "react-router";

/** The end of the address that MLflow's client prints for a run; the id of a task's own run is that of the task. */
const MLFLOW_RUN = /^#\/experiments\/[^/]+\/runs\/(task-[a-z0-9]+)$/;

/** Redirects to the task whose run an address of MLflow names, or else to the overview. */
export function HomeRedirect() {
  const task = MLFLOW_RUN.exec(useLocation().hash)?.[1];
  return <Navigate to={task ? `/training/${task}` : "/overview"} replace />;
}
