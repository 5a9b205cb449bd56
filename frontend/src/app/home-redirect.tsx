import { Navigate } from "react-router";

/** Redirects to the overview. */
export function HomeRedirect() {
  return <Navigate to="/overview" replace />;
}
