import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { MAX_TENSORBOARD_TASKS, openTensorboardQuery, type TensorBoard, tensorboardQuery } from "@/api/tensorboards";
import { Button, ButtonAnchor, ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";

/** Opens the TensorBoard of the tasks in the address, and goes there when it is ready. */
export function Component() {
  const { t } = useTranslation();
  const [params] = useSearchParams();
  const tasks = (params.get("tasks") ?? "").split(",").filter(Boolean);
  const opened = useQuery(openTensorboardQuery(tasks));
  const followed = useQuery(tensorboardQuery(opened.data?.id));
  const board = followed.data ?? opened.data;
  const again = () => void opened.refetch();
  return (
    <Page title={t("tensorboard.title")}>
      {tasks.length === 0 ? (
        <EmptyState title={t("tensorboard.empty")} hint={t("tensorboard.emptyHint", { most: MAX_TENSORBOARD_TASKS })}>
          <ButtonLink to="/runs">{t("runs.title")}</ButtonLink>
        </EmptyState>
      ) : opened.isError ? (
        <LoadError error={opened.error} retry={again} />
      ) : followed.isError && !followed.data ? (
        <LoadError error={followed.error} retry={again} />
      ) : board ? (
        <Progress board={board} onRepeat={again} />
      ) : (
        <Loading tall />
      )}
    </Page>
  );
}

function Progress({ board, onRepeat }: { board: TensorBoard; onRepeat: () => void }) {
  const { t } = useTranslation();
  const { url, reason, state } = board;
  useEffect(() => {
    if (url) location.replace(url);
  }, [url]);
  if (url)
    return (
      <EmptyState title={t("tensorboard.ready")}>
        <ButtonAnchor look="primary" href={url}>
          {t("tensorboard.open")}
        </ButtonAnchor>
      </EmptyState>
    );
  if (state === "starting")
    return (
      <div role="status">
        <EmptyState
          title={reason?.message ?? t("tensorboard.starting")}
          hint={reason?.hint || t("tensorboard.startingHint")}
        >
          <Loading />
        </EmptyState>
      </div>
    );
  return (
    <div role="alert">
      <EmptyState title={reason?.message ?? t("tensorboard.failed")} hint={reason?.hint}>
        <Button look="primary" onClick={onRepeat}>
          {t("tensorboard.again")}
        </Button>
        <ButtonLink to={`/environments/${board.environmentId}`}>{t("tensorboard.environment")}</ButtonLink>
      </EmptyState>
    </div>
  );
}
