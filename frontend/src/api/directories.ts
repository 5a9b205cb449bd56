import { queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";

const key = ["directories"] as const;

export const directoriesQuery = queryOptions({
  queryKey: key,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/directories", { params: { query: { page, pageSize: 100 } } })),
    ),
});
