import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { zonesQuery } from "@/api/inventory";
import { meQuery } from "@/api/session";
import type { Price, PriceRequest } from "@/api/types";
import { pricesQuery, savePrices } from "@/api/usage";
import { formatDateTime, formatMoney } from "@/lib/format";
import { parseNumber } from "@/lib/parse-input";
import { UsageSections } from "@/pages/usage/usage-sections";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Page } from "@/ui/page";
import { MEDIUM_COLUMN, ROW, Table } from "@/ui/table";

const NONE: Price[] = [];

export function Component() {
  const { t } = useTranslation();
  const found = useQuery(pricesQuery);
  const mayChange = useQuery(meQuery).data?.isAdministrator ?? false;
  const prices = found.data?.prices ?? NONE;
  const add = mayChange && found.data && (
    <PriceDialog
      prices={prices}
      at={prices.length}
      trigger={
        <Button look="primary">
          <Plus />
          {t("prices.add")}
        </Button>
      }
    />
  );
  return (
    <Page title={t("prices.title")} actions={add}>
      <UsageSections />
      <p className="mb-3 text-sm text-muted">{t("prices.hint")}</p>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data && prices.length === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          <EmptyState title={t("prices.empty")} hint={t("prices.emptyHint")}>
            {add}
          </EmptyState>
        </section>
      )}
      {found.data && prices.length > 0 && (
        <PriceTable prices={prices} currency={found.data.currency} mayChange={mayChange} />
      )}
    </Page>
  );
}

function PriceTable({ prices, currency, mayChange }: { prices: Price[]; currency: string; mayChange: boolean }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: (at: number) => savePrices(client, prices.toSpliced(at, 1)),
    onError: (error) => toastError(t, error),
  });
  return (
    <Table
      label={t("prices.title")}
      columns={[
        { label: t("prices.gpuType") },
        { label: t("environments.zone") },
        { label: t("prices.perGpuHour"), className: "text-right" },
        { label: t("prices.since"), className: MEDIUM_COLUMN },
        ...(mayChange ? [{ label: <span className="sr-only">{t("prices.change")}</span> }] : []),
      ]}
    >
      {prices.map((price, at) => {
        const { gpuType, zoneId, zoneName, perGpuHour, since } = price;
        const name = `${gpuType || t("prices.anyType")} · ${zoneName || zoneId || t("prices.anyZone")}`;
        return (
          <tr key={`${gpuType} ${zoneId}`} className={ROW}>
            <td>{gpuType || t("prices.anyType")}</td>
            <td>{zoneName || zoneId || t("prices.anyZone")}</td>
            <td className="text-right tabular-nums">{formatMoney(perGpuHour, currency)}</td>
            <td className={`${MEDIUM_COLUMN} whitespace-nowrap`}>{formatDateTime(since)}</td>
            {mayChange && (
              <td className="w-px">
                <span className="flex justify-end gap-1">
                  <PriceDialog
                    prices={prices}
                    at={at}
                    trigger={
                      <Button size="sm" aria-label={t("prices.changeOf", { name })}>
                        {t("prices.change")}
                      </Button>
                    }
                  />
                  <ConfirmDialog
                    danger
                    title={t("prices.removeTitle", { name })}
                    description={t("prices.removeHint")}
                    action={t("settings.remove")}
                    onConfirm={() => remove.mutate(at)}
                    trigger={
                      <Button
                        look="ghost"
                        size="sm"
                        aria-label={t("prices.removeOf", { name })}
                        disabled={remove.isPending}
                      >
                        {t("settings.remove")}
                      </Button>
                    }
                  />
                </span>
              </td>
            )}
          </tr>
        );
      })}
    </Table>
  );
}

/** One entry of the price list; fields have the platform's names. */
function PriceDialog({ prices, at, trigger }: { prices: Price[]; at: number; trigger: ReactNode }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const zones = useQuery(zonesQuery).data ?? [];
  const price = prices[at];
  const [gpuType, zoneId, perGpuHour] = [`prices.${at}.gpuType`, `prices.${at}.zoneId`, `prices.${at}.perGpuHour`];
  const save = (texts: Record<string, string>) => {
    const line = {
      gpuType: texts[gpuType] ?? "",
      zoneId: texts[zoneId] ?? "",
      // invalid numbers are sent as typed: the platform says what is wrong
      perGpuHour: parseNumber(texts[perGpuHour] ?? "") as number,
    };
    return savePrices(client, [...prices.slice(0, at), line, ...prices.slice(at + 1)].map(buildPrice));
  };
  return (
    <FormDialog
      title={t(price ? "prices.change" : "prices.add")}
      description={t("prices.hint")}
      submit={t("app.save")}
      fields={[gpuType, zoneId, perGpuHour]}
      onSubmit={save}
      trigger={trigger}
    >
      {(problem) => (
        <>
          <TextField
            name={gpuType}
            label={t("prices.gpuType")}
            hint={t("prices.emptyIsAny")}
            placeholder="A100"
            defaultValue={price?.gpuType}
            error={problem(gpuType)}
          />
          <Field label={t("environments.zone")} error={problem(zoneId)}>
            {(wiring) => (
              <select {...wiring} name={zoneId} className="control" defaultValue={price?.zoneId ?? ""}>
                <option value="">{t("prices.anyZone")}</option>
                {zones.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {name}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <TextField
            name={perGpuHour}
            label={t("prices.perGpuHour")}
            defaultValue={price?.perGpuHour}
            error={problem(perGpuHour)}
            required
          />
        </>
      )}
    </FormDialog>
  );
}

function buildPrice({ gpuType, zoneId, perGpuHour }: PriceRequest): PriceRequest {
  return { gpuType, zoneId, perGpuHour };
}
