import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { secretsQuery } from "@/api/account";
import { type Snapshot, snapshotsQuery } from "@/api/code";
import { environmentsQuery } from "@/api/inventory";
import { meQuery } from "@/api/session";
import { formatBytes, formatShortTime } from "@/lib/format";
import { Field } from "@/ui/field";
import { CODE_SOURCES, type CodeDraft, type CodeSource } from "./code-draft";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";
import { MonospaceInput } from "./monospace-inputs";

/** The code that the task brings to every node. */
export default function CodeFields({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const { code } = draft;
  const change = (patch: Partial<CodeDraft>) => onChange({ code: { ...code, ...patch } });
  const project = useProject(draft.projectId, draft.selected[0]);
  const full = problems.get("code")?.map(({ message, hint }) => `${message} ${hint}`.trim());
  const text = (name: "path" | "url" | "revision" | "requirements", control: string, hint: string, example: string) => (
    <MonospaceInput
      name={control}
      label={t(`code.ask.${name}`)}
      hint={hint}
      error={getProblemText(problems, control)}
      placeholder={example}
      value={code[name]}
      onText={(typed) => change({ [name]: typed })}
    />
  );
  const fields: Record<CodeSource, () => ReactNode> = {
    "": () => null,
    environment: () => text("path", "code.path", t("code.ask.pathHint"), "."),
    git: () => (
      <>
        {text("url", "code.git.url", t("code.ask.urlHint"), "https://git.example.org/team/model.git")}
        {text("revision", "code.git.revision", t("code.ask.revisionHint"), "HEAD")}
        <Secret project={project} value={code.secret} onChange={(secret) => change({ secret })} problems={problems} />
      </>
    ),
    snapshot: () => (
      <Snapshots
        project={project}
        value={code.snapshot}
        onChange={(snapshot) => change({ snapshot })}
        problems={problems}
      />
    ),
  };
  return (
    <>
      <Field
        label={t("code.ask.source")}
        hint={
          code.taken?.changed
            ? t("code.ask.changed", { snapshot: code.taken.snapshot.slice(0, 12) })
            : t("code.ask.sourceHint")
        }
        error={full?.join("\n")}
      >
        {(wiring) => (
          <select
            {...wiring}
            name="code"
            className="control"
            value={code.source}
            onChange={({ target }) => change({ source: target.value as CodeSource })}
          >
            {CODE_SOURCES.map((each) => (
              <option key={each} value={each}>
                {t(`code.ask.sourceOf.${each || "none"}`)}
              </option>
            ))}
          </select>
        )}
      </Field>
      {fields[code.source]()}
      {code.source && text("requirements", "code.requirements", t("code.ask.requirementsHint"), "auto")}
    </>
  );
}

/** Returns the task's project: the chosen one, the environments', or the user's only one. */
function useProject(chosen: string, first: string | undefined): string | undefined {
  const environments = useQuery(environmentsQuery).data;
  const mine = useQuery(meQuery).data?.projects ?? [];
  return chosen || (environments?.find(({ id }) => id === first)?.projectId ?? mine[0]?.id);
}

interface ChooseProps {
  project: string | undefined;
  value: string;
  onChange: (value: string) => void;
  problems: SectionProps["problems"];
}

function Secret({ project = "", value, onChange, problems }: ChooseProps) {
  const { t } = useTranslation();
  const known = useQuery({ ...secretsQuery(project), enabled: project !== "" }).data ?? [];
  return (
    <Field
      label={t("code.ask.secret")}
      hint={t("code.ask.secretHint")}
      error={getProblemText(problems, "code.git.secret")}
    >
      {(wiring) => (
        <select
          {...wiring}
          name="code.git.secret"
          className="control"
          value={value}
          onChange={({ target }) => onChange(target.value)}
        >
          {[...new Set(["", value, ...known.map(({ name }) => name)])].map((name) => (
            <option key={name} value={name}>
              {name || t("code.ask.noSecret")}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

function Snapshots({ project = "", value, onChange, problems }: ChooseProps) {
  const { t } = useTranslation();
  const found = useQuery({ ...snapshotsQuery(project), enabled: project !== "" }).data?.items ?? [];
  const named = ({ id, origin, files, sizeBytes, createdAt }: Snapshot) =>
    [
      id.slice(0, 12),
      origin.url || origin.branch || t("code.uploaded"),
      t("code.counted", { count: files, size: formatBytes(sizeBytes) }),
      formatShortTime(createdAt),
    ].join(" · ");
  return (
    <Field
      label={t("code.snapshot")}
      hint={t("code.ask.snapshotHint")}
      error={getProblemText(problems, "code.snapshot")}
      className="sm:col-span-2"
    >
      {(wiring) => (
        <select
          {...wiring}
          name="code.snapshot"
          className="control"
          value={value}
          onChange={({ target }) => onChange(target.value)}
        >
          <option value="">{t("code.ask.chooseSnapshot")}</option>
          {value && !found.some(({ id }) => id === value) && <option value={value}>{value.slice(0, 12)}</option>}
          {found.map((each) => (
            <option key={each.id} value={each.id}>
              {named(each)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
