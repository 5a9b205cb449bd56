import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import { createMemoryRouter, RouterProvider } from "react-router";
import { ToastArea } from "@/app/toaster";
import { createQueryClient } from "@/app/query-client";
import { routes } from "@/app/routes";

/** Renders the whole console at an address. */
export function renderAt(address: string) {
  const router = createMemoryRouter(routes, { initialEntries: [address] });
  const client = createQueryClient();
  client.setDefaultOptions({ queries: { retry: false } });
  render(
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
      <ToastArea />
    </QueryClientProvider>,
  );
  return { address: () => router.state.location.pathname + router.state.location.search };
}
