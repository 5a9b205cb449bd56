import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { isSignedOut, isRetryable, needsSignInStep } from "@/api/errors";
import { sessionKeys } from "@/api/session";

/** Creates the query cache. The first 401 refreshes the session, which leads to the sign-in page; so does what is to be
 * done before anything else. The session itself may be what is refused first. */
export function createQueryClient(): QueryClient {
  const onError = (error: unknown) => {
    if (!isSignedOut(error) && !needsSignInStep(error)) return;
    const me = client.getQueryState(sessionKeys.me);
    if (me?.data === undefined) return;
    if (isSignedOut(error)) client.setQueryData(sessionKeys.ended, true);
    if (me.status === "success") void client.resetQueries({ queryKey: sessionKeys.me });
  };
  const client = new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({ onError }),
    defaultOptions: { queries: { staleTime: 2_000, retry: isRetryable } },
  });
  return client;
}
