import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Square } from "lucide-react";
import { useTranslation } from "react-i18next";
import { preflightKeys, stopPreflight } from "@/api/preflights";
import { Button } from "@/ui/button";
import { toastError } from "@/ui/errors";

export function StopButton({ id }: { id: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const stop = useMutation({
    mutationFn: () => stopPreflight(id),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: preflightKeys.all }),
  });
  return (
    <Button disabled={stop.isPending} onClick={() => stop.mutate()}>
      <Square />
      {t("task.stop")}
    </Button>
  );
}
