import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { zonesQuery } from "@/api/inventory";
import { formatInteger } from "@/lib/format";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { ROW, Table } from "@/ui/table";

export function Component() {
  const { t } = useTranslation();
  const zones = useQuery(zonesQuery);
  return (
    <Page title={t("zones.title")}>
      {zones.isError && <LoadError error={zones.error} retry={() => void zones.refetch()} />}
      {zones.isPending && <Loading />}
      {zones.data?.length === 0 && <EmptyState title={t("zones.empty")} />}
      {zones.data && zones.data.length > 0 && (
        <Table
          label={t("zones.title")}
          columns={[
            { label: t("zones.name") },
            { label: t("zones.environments"), className: "text-right" },
            { label: "GPU", className: "text-right" },
            { label: t("zones.tasks") },
          ]}
        >
          {zones.data.map(({ id, name, environmentCount, gpuCount }) => (
            <tr key={id} className={ROW}>
              <td>
                <Link
                  to={`/environments?zone=${encodeURIComponent(id)}`}
                  className="font-medium hover:text-accent-ink hover:underline"
                >
                  {name}
                </Link>
                <div className="font-mono text-xs text-muted">{id}</div>
              </td>
              <td className="text-right tabular-nums">{formatInteger(environmentCount)}</td>
              <td className="text-right tabular-nums">{formatInteger(gpuCount)}</td>
              <td>
                <Link
                  to={`/training?zone=${encodeURIComponent(id)}`}
                  className="whitespace-nowrap text-accent-ink hover:underline"
                >
                  {t("zones.showTasks")}
                </Link>
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Page>
  );
}
