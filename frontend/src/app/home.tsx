import { useQuery } from "@tanstack/react-query";
import { Navigate } from "react-router";
import { meQuery } from "@/api/session";

/** The first page: the overview for whoever runs the platform, the tasks for whoever trains. */
export function Home() {
  const me = useQuery(meQuery).data;
  return me && <Navigate to={me.isAdministrator ? "/overview" : "/training"} replace />;
}
