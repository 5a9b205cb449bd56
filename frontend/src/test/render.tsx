import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import { createMemoryRouter, RouterProvider } from "react-router";
import { Notices } from "@/app/notices";
import { createClient } from "@/app/query";
import { routes } from "@/app/routes";

/** The whole console at an address. */
export function visit(address: string) {
  const router = createMemoryRouter(routes, { initialEntries: [address] });
  const client = createClient();
  client.setDefaultOptions({ queries: { retry: false } });
  render(
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
      <Notices />
    </QueryClientProvider>,
  );
  return { address: () => router.state.location.pathname + router.state.location.search };
}
