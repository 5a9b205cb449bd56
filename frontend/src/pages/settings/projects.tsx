import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import {
  accountKeys,
  addMember,
  updateMemberRole,
  membersQuery,
  removeMember,
  updateProjectWarmth,
} from "@/api/account";
import { refreshProjects } from "@/api/projects";
import { isMaintainer } from "@/api/session";
import type { Me, Member, Project } from "@/api/types";
import { buildAuditAddress } from "@/lib/audit-address";
import { Badge } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { TextLink } from "@/ui/text-link";
import { CreateProject } from "./create-project";
import { Limits } from "./limits";
import { RemovableRow } from "./removable-row";
import { RoleOptions } from "./role-options";
import { Secrets } from "./secrets";
import { ServiceAccounts } from "./service-accounts";

export function Projects({ me }: { me: Me }) {
  const { t } = useTranslation();
  return (
    <>
      {me.projects.map((project) => (
        <ProjectCard key={project.id} project={project} mayChange={isMaintainer(me, project.id)} />
      ))}
      {me.projects.length === 0 && (
        <Card title={t("settings.projects")}>
          <p className="text-sm text-muted">{t("settings.noProjects")}</p>
        </Card>
      )}
      {me.isAdministrator && (
        <div className="flex flex-wrap gap-2">
          <CreateProject />
          <ButtonLink to="/administration/projects">{t("settings.allProjects")}</ButtonLink>
        </div>
      )}
    </>
  );
}

/** What is set for a project: its members, limits, secrets and service accounts. */
export function ProjectCard({ project, mayChange }: { project: Project; mayChange: boolean }) {
  const { t } = useTranslation();
  const members = useQuery(membersQuery(project.id));
  // A maintainer has the service accounts in a list of their own.
  const isPerson = ({ username }: Member) => !mayChange || !username.endsWith(`@${project.id}`);
  return (
    <Card
      title={t("settings.project", { name: project.name })}
      aside={mayChange ? <AddMember project={project.id} /> : <Badge>{t(`settings.roleOf.${project.role}`)}</Badge>}
    >
      <p className="flex flex-wrap items-center gap-x-3 text-xs text-muted">
        <span className="font-mono">{project.id}</span>
        {mayChange && <TextLink to={buildAuditAddress({ project: project.id })}>{t("app.audit")}</TextLink>}
      </p>
      {members.isError && <LoadError error={members.error} retry={() => void members.refetch()} />}
      {members.isPending && <Loading />}
      <ul className="mt-2 divide-y text-sm" aria-label={t("settings.members")}>
        {members.data?.filter(isPerson).map((member) => (
          <MemberItem key={member.username} project={project.id} member={member} mayChange={mayChange} />
        ))}
      </ul>
      <WarmEnvironments project={project} mayChange={mayChange} />
      <Limits project={project.id} mayChange={mayChange} />
      <Secrets project={project.id} mayChange={mayChange} />
      {mayChange && <ServiceAccounts project={project} />}
    </Card>
  );
}

function WarmEnvironments({ project, mayChange }: { project: Project; mayChange: boolean }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (warm: boolean) => updateProjectWarmth(project.id, warm),
    onError: (error: Error) => toastError(t, error),
    onSettled: () => refreshProjects(client),
  });
  return (
    <label className="mt-3 flex items-start gap-2 text-sm">
      <input
        type="checkbox"
        className="mt-1"
        checked={project.warm}
        disabled={!mayChange || change.isPending}
        onChange={({ target }) => change.mutate(target.checked)}
      />
      <span>
        {t("settings.warm")}
        <span className="block text-xs text-muted">{t("settings.warmHint")}</span>
      </span>
    </label>
  );
}

function AddMember({ project }: { project: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const add = async ({ username = "", role }: Record<string, string>) => {
    await addMember(project, { username, role: role as Member["role"] });
    await client.invalidateQueries({ queryKey: accountKeys.members(project) });
  };
  return (
    <FormDialog
      title={t("settings.addMember")}
      submit={t("settings.add")}
      fields={["username", "role"]}
      onSubmit={add}
      trigger={
        <Button size="sm">
          <Plus />
          {t("settings.addMember")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField name="username" label={t("settings.username")} error={problem("username")} required />
          <Field label={t("settings.role")} hint={t("settings.rolesHint")} error={problem("role")}>
            {(wiring) => (
              <select {...wiring} name="role" className="control" defaultValue="member">
                <RoleOptions />
              </select>
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

interface MemberItemProps {
  project: string;
  member: Member;
  mayChange: boolean;
}

function MemberItem({ project, member, mayChange }: MemberItemProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const after = {
    onError: (error: Error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: accountKeys.members(project) }),
  };
  const change = useMutation({
    mutationFn: (role: Member["role"]) => updateMemberRole(project, { ...member, role }),
    ...after,
  });
  const remove = useMutation({ mutationFn: () => removeMember(project, member.username), ...after });
  return (
    <RemovableRow
      name={member.username}
      label={t("settings.removeMember", { name: member.username })}
      title={t("settings.removeTitle", { name: member.username })}
      hint={t("settings.removeHint")}
      remove={mayChange ? remove : undefined}
    >
      {mayChange ? (
        <select
          aria-label={t("settings.roleOfMember", { name: member.username })}
          className="control w-auto"
          value={member.role}
          disabled={change.isPending}
          onChange={({ target }) => change.mutate(target.value as Member["role"])}
        >
          <RoleOptions />
        </select>
      ) : (
        <span className="text-muted">{t(`settings.roleOf.${member.role}`)}</span>
      )}
    </RemovableRow>
  );
}
