import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { LogOut, UserRound } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, Navigate, Outlet, useLocation, useNavigate } from "react-router";
import { isSignedOut, needsSignInStep } from "@/api/errors";
import { meQuery, sessionKeys, signOut } from "@/api/session";
import type { Me } from "@/api/types";
import { Button, ButtonLink } from "@/ui/button";
import { LoadError, toastError } from "@/ui/errors";
import { Logo } from "@/ui/logo";
import { Skeleton } from "@/ui/skeleton";
import { InboxButton } from "./inbox-button";
import { ConnectionBanner } from "./connection-banner";
import { PaletteButton } from "./palette-button";
import { OperatorNotices } from "./operator-notices";
import { Navigation } from "./navigation";
import { LanguageSwitch, ThemeSwitch } from "./preferences";

/** The frame of every page for signed-in users. Others are sent to sign in and return afterwards. */
export function Shell() {
  const { t } = useTranslation();
  const { pathname, search, hash } = useLocation();
  const client = useQueryClient();
  const me = useQuery(meQuery);
  const next = encodeURIComponent(pathname + search + hash);
  if (isSignedOut(me.error)) {
    const ended = client.getQueryData(sessionKeys.ended) === true;
    return <Navigate to={`/sign-in?next=${next}`} state={ended ? { ended } : null} replace />;
  }
  if (needsSignInStep(me.error)) return <Navigate to={`/sign-in/steps?next=${next}`} replace />;
  if (me.isError) {
    return (
      <div className="mx-auto max-w-xl p-8">
        <LoadError error={me.error} retry={() => void me.refetch()} />
      </div>
    );
  }
  if (me.isPending) return <Skeleton />;
  if (isEmbedded(pathname, search)) {
    return (
      <main id="main" className="px-3 py-2">
        <Outlet />
      </main>
    );
  }
  return (
    <>
      <a
        href="#main"
        className="sr-only z-50 rounded-lg bg-accent px-3 py-2 text-white focus:not-sr-only focus:fixed focus:top-2 focus:left-2"
      >
        {t("app.skip")}
      </a>
      <Header me={me.data} />
      <ConnectionBanner />
      <main id="main" className="mx-auto max-w-[100rem] px-4 py-5 sm:px-6">
        <OperatorNotices />
        <Outlet />
      </main>
    </>
  );
}

/** Returns whether a page is shown alone, without the frame. */
function isEmbedded(pathname: string, search: string): boolean {
  return pathname === "/compare" && new URLSearchParams(search).get("embed") === "1";
}

function Header({ me }: { me: Me }) {
  const { t } = useTranslation();
  return (
    <header className="sticky top-0 z-30 border-b bg-surface">
      <div className="mx-auto flex min-h-14 max-w-[100rem] flex-wrap items-center gap-x-2 px-4 pt-1.5 sm:gap-x-4 sm:px-6 xl:pt-0">
        <Link to="/" aria-label={t("app.name")} className="flex items-center gap-2 font-semibold">
          <Logo />
          <span className="hidden sm:inline">{t("app.name")}</span>
        </Link>
        <Navigation />
        <span className="flex-1 xl:hidden" />
        <PaletteButton />
        <InboxButton />
        <LanguageSwitch />
        <ThemeSwitch />
        <SignOut username={me.username} />
      </div>
    </header>
  );
}

/** The link to the settings has the user's name where the header has room for it on one line. */
function SignOut({ username }: { username: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { mutate, isPending } = useMutation({
    mutationFn: signOut,
    onSuccess: async (address) => {
      if (address) {
        location.assign(address);
        return;
      }
      await navigate("/sign-in");
      client.clear();
    },
    onError: (error) => toastError(t, error),
  });
  return (
    <div className="flex items-center gap-1 border-l pl-2 sm:pl-3">
      <ButtonLink
        look="ghost"
        size="sm"
        to="/settings"
        title={username}
        aria-label={t("app.settingsOf", { name: username })}
      >
        <UserRound />
        <span className="hidden max-w-40 truncate sm:inline xl:max-w-28 xl:max-[86rem]:hidden">{username}</span>
      </ButtonLink>
      <Button look="ghost" size="icon" aria-label={t("app.signOut")} disabled={isPending} onClick={() => mutate()}>
        <LogOut />
      </Button>
    </div>
  );
}
