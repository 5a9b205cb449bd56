import { Navigate } from "react-router";

/** The first page is the overview: of everything, or of what is one's own. */
export function HomeRedirect() {
  return <Navigate to="/overview" replace />;
}
