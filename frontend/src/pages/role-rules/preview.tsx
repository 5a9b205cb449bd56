import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import type { RoleRuleChange, RoleRulePreview } from "@/api/role-rules";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Collapsible } from "@/ui/collapsible";

const NAMES_SHOWN = 50;

interface PreviewProps {
  preview: RoleRulePreview;
  /** The rule reads a directory. */
  ofDirectory?: boolean;
  /** Chooses a group that was read. */
  onGroup?: (group: string) => void;
}

/** What saving would change about people. */
export function Preview({ preview, ofDirectory, onGroup }: PreviewProps) {
  const { t } = useTranslation();
  const { changes, changesTotal, newAdministrators, lostAdministrators, lastAdministrator } = preview;
  const { tokens, tokensTotal, taken, unknownTotal, knownTotal } = preview;
  const nothing = changesTotal + newAdministrators.length + lostAdministrators.length + tokensTotal === 0;
  const people = t("roleRules.people", { count: knownTotal });
  return (
    <section aria-label={t("roleRules.preview")} className="space-y-2 rounded-lg border bg-sunken p-3 text-sm">
      <h3 className="font-semibold">{t("roleRules.preview")}</h3>
      {newAdministrators.length > 0 && (
        <Callout tone="warn" role="alert">
          <p>{t("roleRules.newAdministrators", { count: newAdministrators.length })}</p>
          <Names names={newAdministrators} />
        </Callout>
      )}
      {lostAdministrators.length > 0 && (
        <Callout tone="warn">
          <p>{t("roleRules.lostAdministrators", { count: lostAdministrators.length })}</p>
          <Names names={lostAdministrators} />
        </Callout>
      )}
      {lastAdministrator && (
        <Callout tone="warn">{t("roleRules.lastAdministrator", { name: lastAdministrator })}</Callout>
      )}
      {nothing && <p>{t("roleRules.nothing")}</p>}
      {groupChanges(changes).map(({ project, after, people: names }) => (
        <Fold
          key={`${after ?? ""} ${project}`}
          title={
            after
              ? t("roleRules.become", { count: names.length, role: t(`settings.roleOf.${after}`), project })
              : t("roleRules.lose", { count: names.length, project })
          }
          names={names.map(({ username, before }) =>
            before ? t("roleRules.before", { name: username, role: t(`settings.roleOf.${before}`) }) : username,
          )}
        />
      ))}
      {changesTotal > changes.length && (
        <p className="text-muted">{t("roleRules.cut", { shown: changes.length, count: changesTotal })}</p>
      )}
      {tokensTotal > 0 && (
        <Fold
          title={t("roleRules.tokens", { count: tokensTotal })}
          names={tokens.map(({ name, id, username }) => t("roleRules.tokenOf", { token: name || id, name: username }))}
        />
      )}
      {changes.some(({ after }) => after === null) && <p className="text-muted">{t("roleRules.ends")}</p>}
      {taken.length > 0 && <Callout tone="warn">{t("roleRules.taken", { names: taken.join(", ") })}</Callout>}
      {unknownTotal > 0 && <p className="text-muted">{t("roleRules.unknown", { count: unknownTotal })}</p>}
      <Collapsible
        title={t("roleRules.read", { people })}
        wanted={false}
        whenOpen={() => <Groups preview={preview} ofDirectory={ofDirectory} onGroup={onGroup} />}
      />
    </section>
  );
}

interface Grouped {
  project: string;
  after: RoleRuleChange["after"];
  people: RoleRuleChange[];
}

/** Returns the changes by project and new role: losses last. */
export function groupChanges(changes: RoleRuleChange[]): Grouped[] {
  const groups = new Map<string, Grouped>();
  for (const change of changes) {
    const name = `${change.after ?? ""} ${change.projectName}`;
    const group = groups.get(name) ?? { project: change.projectName, after: change.after, people: [] };
    groups.set(name, { ...group, people: [...group.people, change] });
  }
  return [...groups.values()].sort((one, other) => Number(one.after === null) - Number(other.after === null));
}

function Fold({ title, names }: { title: string; names: string[] }) {
  return <Collapsible title={title} wanted={false} whenOpen={() => <Names names={names} />} />;
}

/** Names, a page at a time. */
function Names({ names }: { names: string[] }) {
  const { t } = useTranslation();
  const [shown, setShown] = useState(NAMES_SHOWN);
  return (
    <Indented>
      <p className="break-words">{names.slice(0, shown).join(" · ")}</p>
      {names.length > shown && (
        <Button size="sm" look="ghost" onClick={() => setShown(shown + NAMES_SHOWN)}>
          {t("roleRules.more", { count: names.length - shown })}
        </Button>
      )}
    </Indented>
  );
}

function Groups({ preview, ofDirectory, onGroup }: PreviewProps) {
  const { t } = useTranslation();
  const { groups, groupsTotal } = preview;
  if (groups.length === 0)
    return <Indented>{t(ofDirectory ? "roleRules.noGroupsWritten" : "roleRules.noGroups")}</Indented>;
  return (
    <Indented>
      <ul className="flex flex-wrap gap-1" aria-label={t("roleRules.groups")}>
        {groups.map(({ name, peopleCount }) => (
          <li key={name} className="min-w-0">
            <Button size="sm" className="max-w-full" title={name} disabled={!onGroup} onClick={() => onGroup?.(name)}>
              <span className="truncate">{name}</span> <span className="text-muted">{peopleCount}</span>
            </Button>
          </li>
        ))}
      </ul>
      {groupsTotal > groups.length && (
        <p className="mt-1 text-muted">{t("roleRules.groupsCut", { shown: groups.length, count: groupsTotal })}</p>
      )}
    </Indented>
  );
}

function Indented({ children }: { children: ReactNode }) {
  return <div className="py-1 pl-6">{children}</div>;
}
