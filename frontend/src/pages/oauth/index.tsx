import { useMutation, useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { useLocation } from "react-router";
import { decideAuthorization, describeAuthorization } from "@/api/oauth";
import { LoadError, Loading } from "@/ui/errors";
import { Consent } from "./consent";

/** Where a program sends a browser that is to grant it access. */
export function Component() {
  const { t } = useTranslation();
  const query = useLocation().search.slice(1);
  const asked = useQuery({
    queryKey: ["oauth", "authorization", query],
    queryFn: () => describeAuthorization(query),
    retry: false,
    staleTime: Infinity,
  });
  const decide = useMutation({
    mutationFn: (choice?: Parameters<typeof decideAuthorization>[1]) => decideAuthorization(query, choice),
    onSuccess: (address) => location.assign(address),
  });
  return (
    <div className="mx-auto max-w-2xl py-6">
      <title>{`${t("oauth.page")} · Fermi`}</title>
      {asked.isPending && <Loading />}
      {asked.isError && <LoadError error={asked.error} retry={() => void asked.refetch()} />}
      {asked.data && (
        <Consent
          asked={asked.data}
          isPending={decide.isPending || decide.isSuccess}
          error={decide.error}
          onDecide={decide.mutate}
        />
      )}
    </div>
  );
}
