import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { everyPage, http, unwrap } from "./client";
import { queueChanged } from "./queue";
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
      everyPage((page) =>
        unwrap(http.GET("/api/v1/reservations", { params: { query: { ...filters, page, pageSize: PAGE } } })),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });

export const createReservation = (body: ReservationRequest) => unwrap(http.POST("/api/v1/reservations", { body }));

export const changeReservation = (id: string, body: ReservationRequest) =>
  unwrap(http.PATCH("/api/v1/reservations/{reservation_id}", { params: { path: { reservation_id: id } }, body }));

export const deleteReservation = (id: string) =>
  unwrap(http.DELETE("/api/v1/reservations/{reservation_id}", { params: { path: { reservation_id: id } } }));

/** Who begins when follows from what is set aside. */
export async function reservationsChanged(client: QueryClient): Promise<void> {
  await Promise.all([client.invalidateQueries({ queryKey: RESERVATIONS }), queueChanged(client)]);
}
