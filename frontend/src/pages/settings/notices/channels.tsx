import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { channelsQuery, deleteChannel, noticeKeys, testChannel } from "@/api/notices";
import type { Me, NoticeChannel } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Collapsible } from "@/ui/collapsible";
import { RemovableRow } from "../removable-row";
import { ChannelForm } from "./channel-form";
import { Deliveries, Delivery } from "./deliveries";
import { canChange, useOwnerName } from "./owner";

export function Channels({ me }: { me: Me }) {
  const { t } = useTranslation();
  const channels = useQuery(channelsQuery);
  return (
    <Card title={t("notices.channels")} aside={<ChannelForm me={me} />}>
      <p className="text-sm text-muted">{t("notices.channelsHint")}</p>
      {channels.isError && <LoadError error={channels.error} retry={() => void channels.refetch()} />}
      {channels.isPending && <Loading />}
      <ul className="mt-2 divide-y text-sm" aria-label={t("notices.channels")}>
        {channels.data?.map((channel) => (
          <ChannelItem key={channel.id} me={me} channel={channel} />
        ))}
      </ul>
      {channels.data?.length === 0 && <p className="py-4 text-center text-sm text-muted">{t("notices.noChannels")}</p>}
    </Card>
  );
}

function ChannelItem({ me, channel }: { me: Me; channel: NoticeChannel }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const ownerName = useOwnerName(me);
  const changed = () => client.invalidateQueries({ queryKey: noticeKeys.channels });
  const onError = (error: Error) => toastError(t, error);
  const test = useMutation({ mutationFn: () => testChannel(channel.id), onError, onSettled: changed });
  const remove = useMutation({
    mutationFn: () => deleteChannel(channel.id),
    onError,
    onSettled: () => Promise.all([changed(), client.invalidateQueries({ queryKey: noticeKeys.rules })]),
  });
  const { name } = channel;
  const may = canChange(me, channel);
  return (
    <RemovableRow
      name={
        <>
          <span className="font-medium">{name}</span> <Badge>{ownerName(channel)}</Badge>{" "}
          {!channel.enabled && <Badge tone="warn">{t("notices.off")}</Badge>}
        </>
      }
      below={
        <>
          <span className="block font-mono text-xs break-words text-muted">{channel.address}</span>
          {channel.lastSentAt && (
            <span className="block text-xs text-muted">
              {t("notices.lastSent", { at: formatDateTime(channel.lastSentAt) })}
            </span>
          )}
          {channel.restsUntil && (
            <span className="block text-xs text-warn-ink">
              {t("notices.rests", { count: channel.failures, at: formatDateTime(channel.restsUntil) })}
            </span>
          )}
          {test.data && (
            <div role="status" className="mb-1">
              <Delivery delivery={test.data} />
            </div>
          )}
          <Collapsible
            title={t("notices.log")}
            wanted={false}
            summaryClassName="text-xs text-muted"
            whenOpen={() => <Deliveries channel={channel.id} />}
          />
        </>
      }
      label={t("notices.removeOf", { name })}
      title={t("notices.removeTitle", { name })}
      hint={t("notices.removeChannelHint")}
      {...(may && { remove })}
    >
      {may && (
        <>
          <Button
            size="sm"
            aria-label={t("notices.testOf", { name })}
            disabled={test.isPending}
            onClick={() => test.mutate()}
          >
            {t(test.isPending ? "notices.testing" : "notices.test")}
          </Button>
          <ChannelForm me={me} channel={channel} />
        </>
      )}
    </RemovableRow>
  );
}
