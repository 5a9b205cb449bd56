import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { createPerson, peopleQuery } from "@/api/people";
import { meQuery } from "@/api/session";
import type { PeopleOrdering, Person } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { useFilters } from "@/lib/use-filters";
import { useTableSettings } from "@/lib/use-table-settings";
import { Badge } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { InvitationLink } from "./invitation-link";
import { PersonMenu } from "./person-menu";
import { useRefreshPeople } from "./use-refresh-people";

export function Component() {
  const { t } = useTranslation();
  const { filters, page, set, of } = useFilters(["search", "kind", "state"]);
  const { ordering, onOrder } = useTableSettings(["username", "createdAt"]);
  const people = useQuery(
    peopleQuery({
      search: filters.search ?? "",
      service: filters.kind === "service",
      active: filters.state ? filters.state === "active" : undefined,
      ordering: ordering as PeopleOrdering | undefined,
      page,
    }),
  );
  const me = useQuery(meQuery).data?.username;
  const found = people.data;
  return (
    <Page
      title={t("people.title")}
      actions={
        <>
          <ButtonLink to="/administration/projects">{t("settings.allProjects")}</ButtonLink>
          <CreatePerson />
        </>
      }
    >
      <p className="mb-3 text-sm text-muted">{t("people.hint")}</p>
      <div className="mb-3 flex flex-wrap gap-2">
        <SearchBox label={t("people.search")} value={filters.search ?? ""} onSettled={(text) => set("search", text)} />
        <FilterSelect
          label={t("people.kinds")}
          any={t("people.title")}
          options={[["service", t("people.service")]]}
          {...of("kind")}
        />
        <FilterSelect
          label={t("people.states")}
          any={t("people.anyState")}
          options={[
            ["active", t("people.active")],
            ["inactive", t("people.inactive")],
          ]}
          {...of("state")}
        />
      </div>
      {people.isError && <LoadError error={people.error} retry={() => void people.refetch()} />}
      {people.isPending && <Loading />}
      {found?.items.length === 0 && <EmptyState title={t("people.empty")} />}
      {found && found.items.length > 0 && (
        <>
          <Table
            label={t("people.title")}
            ordering={ordering}
            onOrder={onOrder}
            columns={[
              { label: t("people.username"), order: "username" },
              { label: t("people.projects"), className: MEDIUM_COLUMN },
              { label: t("people.signIn"), className: MEDIUM_COLUMN },
              { label: t("people.lastSignIn"), className: WIDE_COLUMN },
              { label: <span className="sr-only">{t("people.confirm")}</span> },
            ]}
          >
            {found.items.map((person) => (
              <PersonRow key={person.username} person={person} isMe={person.username === me} />
            ))}
          </Table>
          <Pager
            count={t("people.count", { count: found.total })}
            pages={Math.ceil(found.total / found.pageSize)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

function PersonRow({ person, isMe }: { person: Person; isMe: boolean }) {
  const { t } = useTranslation();
  const { username, email, isActive, isAdministrator, isOperator, projects, lastSignInAt } = person;
  return (
    <tr className={ROW}>
      <td>
        <span className="flex flex-wrap items-center gap-1.5">
          <span className="font-medium break-all">{username}</span>
          {isMe && <Badge tone="info">{t("people.you")}</Badge>}
          {isAdministrator && <Badge tone="accent">{t("people.administrator")}</Badge>}
          {isOperator && !isAdministrator && <Badge tone="accent">{t("people.operator")}</Badge>}
          {!isActive && <Badge tone="warn">{t("people.inactive")}</Badge>}
        </span>
        {email && <span className="block break-all text-muted">{email}</span>}
        <div className="mt-1 md:hidden">
          <Roles projects={projects} />
          <SignInWays person={person} />
        </div>
      </td>
      <td className={MEDIUM_COLUMN}>
        {projects.length === 0 && "–"}
        <Roles projects={projects} />
      </td>
      <td className={MEDIUM_COLUMN}>
        <SignInWays person={person} />
      </td>
      <td className={WIDE_COLUMN}>{lastSignInAt ? formatDateTime(lastSignInAt) : t("people.never")}</td>
      <td className="w-px">{!isMe && <PersonMenu person={person} />}</td>
    </tr>
  );
}

function Roles({ projects }: Pick<Person, "projects">) {
  const { t } = useTranslation();
  return projects.map(({ id, name, role }) => (
    <div key={id}>
      <span className="break-words">{name}</span> <span className="text-muted">{t(`settings.roleOf.${role}`)}</span>
    </div>
  ));
}

function SignInWays({ person }: { person: Person }) {
  const { t } = useTranslation();
  const ways = [...(person.hasPassword ? [t("people.password")] : []), ...person.providers];
  const none = t(person.isService ? "people.token" : person.lastSignInAt ? "people.link" : "people.nothing");
  return (
    <span className="flex flex-wrap items-center gap-1.5">
      {ways.length > 0 ? ways.join(" · ") : <span className="text-muted">{none}</span>}
      {person.hasSecondFactor && <Badge tone="ok">{t("people.secondFactor")}</Badge>}
    </span>
  );
}

function CreatePerson() {
  const { t } = useTranslation();
  const refresh = useRefreshPeople();
  const create = async ({ username = "", email = "" }: Record<string, string>) => {
    const made = await createPerson({ username, email });
    await refresh();
    return made;
  };
  return (
    <FormDialog
      title={t("people.create")}
      description={t("people.createHint")}
      submit={t("people.create")}
      fields={["username", "email"]}
      onSubmit={create}
      result={({ person, invitation }) => <InvitationLink name={person.username} invitation={invitation} />}
      trigger={
        <Button look="primary">
          <Plus />
          {t("people.create")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField
            name="username"
            label={t("people.username")}
            error={problem("username")}
            maxLength={150}
            required
          />
          <TextField name="email" label={t("people.email")} error={problem("email")} maxLength={254} />
        </>
      )}
    </FormDialog>
  );
}
