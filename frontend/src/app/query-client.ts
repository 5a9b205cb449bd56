import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { isSignedOut, isRetryable, needsSignInStep } from "@/api/errors";
import { sessionKeys } from "@/api/session";

/** Creates the query cache. The first 401 refreshes the session, which leads to the sign-in page; so
 * does what is to be done before anything else. */
export function createQueryClient(): QueryClient {
  const onError = (error: unknown) => {
    if (!isSignedOut(error) && !needsSignInStep(error)) return;
    const me = client.getQueryState(sessionKeys.me);
    if (me?.status !== "success") return;
    client.setQueryData(sessionKeys.ended, true);
    void client.resetQueries({ queryKey: sessionKeys.me });
  };
  const client = new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({ onError }),
    defaultOptions: { queries: { staleTime: 2_000, retry: isRetryable } },
  });
  return client;
}
