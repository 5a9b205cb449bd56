import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import { invalidateQueue } from "./queue";
import type { ReservationRequest } from "./types";

export interface ReservationFilters {
  from: string;
  to: string;
  project?: string;
}

const PAGE = 100;
const RESERVATIONS = ["reservations"] as const;

export const reservationsQuery = (filters: ReservationFilters) =>
  queryOptions({
    queryKey: [...RESERVATIONS, filters] as const,
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(http.GET("/api/v1/reservations", { params: { query: { ...filters, page, pageSize: PAGE } } })),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });

export const createReservation = (body: ReservationRequest) =>
  unwrapResponse(http.POST("/api/v1/reservations", { body }));

export const updateReservation = (id: string, body: ReservationRequest) =>
  unwrapResponse(
    http.PATCH("/api/v1/reservations/{reservation_id}", { params: { path: { reservation_id: id } }, body }),
  );

export const deleteReservation = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/reservations/{reservation_id}", { params: { path: { reservation_id: id } } }));

/** Refreshes reservations, and the queue and timeline that depend on them. */
export async function invalidateReservations(client: QueryClient): Promise<void> {
  await Promise.all([client.invalidateQueries({ queryKey: RESERVATIONS }), invalidateQueue(client)]);
}
