import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Navigate, useNavigate, useSearchParams } from "react-router";
import { ApiError, isSignedOut } from "@/api/errors";
import { acceptBanner, bannerQuery } from "@/api/policies";
import { meQuery, signOut } from "@/api/session";
import { LanguageSwitch, ThemeSwitch } from "@/app/preferences";
import { getLanguage } from "@/i18n";
import { Button } from "@/ui/button";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Logo } from "@/ui/logo";
import { getSafeNext } from "@/pages/sign-in";
import { BannerText } from "@/pages/sign-in/banner";
import { SecondFactorSetup } from "./second-factor";

/** What the platform asks of people between sign-in and the first page: to accept a notice, to have a second factor. */
export function Component() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [params] = useSearchParams();
  const me = useQuery({ ...meQuery, staleTime: 0 });
  const next = getSafeNext(params.get("next"));
  const again = () => client.resetQueries({ queryKey: meQuery.queryKey });
  const leave = useMutation({
    mutationFn: signOut,
    onError: (error) => toastError(t, error),
    onSuccess: async () => {
      client.clear();
      await navigate("/sign-in", { replace: true });
    },
  });
  const code = me.error instanceof ApiError ? me.error.code : "";
  if (isSignedOut(me.error)) return <Navigate to={`/sign-in?next=${encodeURIComponent(next)}`} replace />;
  if (me.data) return <Navigate to={next} replace />;
  return (
    <div className="flex min-h-dvh flex-col">
      <title>{`${t("steps.title")} · Fermi`}</title>
      <header className="flex justify-end gap-1 p-3">
        <LanguageSwitch />
        <ThemeSwitch />
      </header>
      <main className="mx-auto flex w-full max-w-md flex-1 flex-col justify-center gap-5 px-4 pb-24">
        <Logo className="mx-auto size-12" />
        {me.isPending && <Loading />}
        {code === "BANNER_NOT_ACCEPTED" && <BannerStep onDone={again} />}
        {code === "SECOND_FACTOR_REQUIRED" && (
          <>
            <h1 className="text-center text-2xl font-semibold">{t("secondFactor.title")}</h1>
            <div className="rounded-xl border bg-surface p-5 shadow-xs">
              <SecondFactorSetup lead={t("secondFactor.required")} onDone={() => void again()} />
            </div>
          </>
        )}
        {me.isError && !["BANNER_NOT_ACCEPTED", "SECOND_FACTOR_REQUIRED"].includes(code) && (
          <LoadError error={me.error} retry={() => void me.refetch()} />
        )}
        <Button look="ghost" className="self-center" disabled={leave.isPending} onClick={() => leave.mutate()}>
          {t("app.signOut")}
        </Button>
      </main>
    </div>
  );
}

function BannerStep({ onDone }: { onDone: () => Promise<unknown> }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const banner = useQuery(bannerQuery(getLanguage()));
  const accept = useMutation({
    mutationFn: acceptBanner,
    onSuccess: onDone,
    onError: async (error) => {
      toastError(t, error);
      await client.invalidateQueries({ queryKey: ["session", "banner"] });
    },
  });
  if (banner.isError) return <LoadError error={banner.error} retry={() => void banner.refetch()} />;
  const { data } = banner;
  if (!data) return <Loading />;
  return (
    <>
      <BannerText title={data.title} text={data.text} />
      <Button
        look="primary"
        className="w-full justify-center"
        disabled={accept.isPending}
        onClick={() => accept.mutate(data.version)}
      >
        {t("steps.accept")}
      </Button>
    </>
  );
}
