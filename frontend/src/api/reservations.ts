import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { everyPage } from "./client";
import { ask } from "./loose";

/** Environments that only one project gets for a while; without a project nobody gets them: they are maintained. */
export interface Reservation {
  id: string;
  projectId: string | null;
  projectName: string | null;
  environments: { id: string; name: string }[];
  from: string;
  to: string;
  note: string;
  createdBy: string | null;
}

export interface ReservationChange {
  projectId: string | null;
  environmentIds: string[];
  from: string;
  to: string;
  note: string;
}

export interface ReservationFilters {
  from: string;
  to: string;
  project?: string;
}

const PAGE = 100;

export const reservationKeys = { all: ["reservations"] as const };

export const reservationsQuery = (filters: ReservationFilters) =>
  queryOptions({
    queryKey: [...reservationKeys.all, filters] as const,
    queryFn: () =>
      everyPage((page) =>
        ask<{ items: Reservation[]; total: number }>("GET", "/reservations", {
          query: { ...filters, page, pageSize: PAGE },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });

export const createReservation = (body: ReservationChange) => ask<Reservation>("POST", "/reservations", { body });

export const changeReservation = (id: string, body: ReservationChange) =>
  ask<Reservation>("PATCH", `/reservations/${id}`, { body });

export const deleteReservation = (id: string) => ask<null>("DELETE", `/reservations/${id}`);

/** Who begins when follows from what is set aside. */
export async function reservationsChanged(client: QueryClient): Promise<void> {
  await Promise.all([
    client.invalidateQueries({ queryKey: reservationKeys.all }),
    client.invalidateQueries({ queryKey: ["queue"] }),
  ]);
}
