import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Reservation } from "@/api/types";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError, buildUser } from "@/test/platform";
import { renderAt } from "@/test/render";
import {
  formatDateInput,
  parseDateInput,
  parseDateTimeInput,
  formatDateTimeInput,
  overlapsDay,
  listWeeks,
} from "@/lib/dates";

const reservation: Reservation = {
  id: "reservation-1",
  kind: "reserved",
  projectId: "project-1",
  projectName: "默认",
  environments: [{ id: "env-1", name: "gn6" }],
  beginsAt: new Date(2026, 10, 24, 9).toISOString(),
  endsAt: new Date(2026, 10, 25, 18).toISOString(),
  note: "论文截止",
  createdAt: "2026-11-21T05:00:00Z",
  createdBy: "ada",
  mayChange: false,
};
const maintenance: Reservation = {
  ...reservation,
  id: "reservation-2",
  kind: "maintenance",
  projectId: null,
  projectName: "",
  note: "",
};

function asMaintainer(...items: Reservation[]) {
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(buildUser("maintainer"))),
    http.get(apiUrl("/reservations"), () => respondWithList(...items)),
  );
}

test("a month shows each window on its days and in a list; a member changes nothing", async () => {
  platformHandlers.use(http.get(apiUrl("/reservations"), () => respondWithList(reservation, maintenance)));
  renderAt("/queue/reservations?day=2026-11-01");
  const calendar = await screen.findByRole("table", { name: "预留日历" });
  expect(within(calendar).getAllByText(/论文截止/)).toHaveLength(2);
  expect(within(calendar).getAllByText(/维护/)).toHaveLength(2);
  expect(screen.getByText("2026年11月")).toBeTruthy();
  expect(screen.getAllByRole("link", { name: "gn6" })[0]?.getAttribute("href")).toBe("/environments/env-1");
  expect(screen.queryByRole("button", { name: /新建预留|修改|删除/ })).toBeNull();
});

test("the address says which month or week is asked for", async () => {
  const query: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/reservations"), ({ request }) => {
      const { searchParams } = new URL(request.url);
      query.push(["from", "to"].map((name) => formatDateInput(new Date(searchParams.get(name) ?? ""))).join(" "));
      return respondWithList();
    }),
  );
  const page = renderAt("/queue/reservations?day=2026-11-23");
  await screen.findByText("这段时间没有预留，也没有维护");
  expect(query.at(-1)).toBe("2026-10-26 2026-12-07");
  await userEvent.selectOptions(screen.getByLabelText("视图"), "week");
  await waitFor(() => expect(query.at(-1)).toBe("2026-11-23 2026-11-30"));
  await userEvent.click(screen.getByRole("button", { name: "向后" }));
  await waitFor(() => expect(page.address()).toBe("/queue/reservations?day=2026-11-30&view=week"));
});

test("a reservation is made, and what is wrong with it stands at its field", async () => {
  asMaintainer();
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/reservations"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            { field: "environmentIds", error: "X", message: "这段时间已经预留", hint: "" },
          ])
        : respondWith(reservation, 201);
    }),
  );
  renderAt("/queue/reservations");
  await userEvent.click((await screen.findAllByRole("button", { name: "新建预留" }))[0] as HTMLElement);
  const dialog = await screen.findByRole("dialog");
  await userEvent.click(await within(dialog).findByRole("checkbox", { name: /name-of-env-2/ }));
  await userEvent.selectOptions(within(dialog).getByLabelText("给谁"), "维护");
  await userEvent.type(within(dialog).getByLabelText("备注"), "升级驱动");
  const save = within(dialog).getByRole("button", { name: "保存" });
  await userEvent.click(save);
  await within(dialog).findByText("这段时间已经预留");
  await userEvent.selectOptions(within(dialog).getByLabelText("给谁"), "project-1");
  await userEvent.click(save);
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(sent[0]).toMatchObject({ projectId: null, environmentIds: ["env-2"], note: "升级驱动" });
  expect(sent[1]).toMatchObject({ projectId: "project-1" });
});

test("a reservation is changed from what it is, and deleted after a question", async () => {
  asMaintainer({ ...reservation, mayChange: true });
  const sent: unknown[] = [];
  platformHandlers.use(
    http.patch(apiUrl("/reservations/reservation-1"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(reservation);
    }),
    http.delete(apiUrl("/reservations/reservation-1"), () => {
      sent.push("deleted");
      return respondWith(null);
    }),
  );
  renderAt("/queue/reservations?day=2026-11-01");
  await userEvent.click(await screen.findByRole("button", { name: "修改预留“论文截止”" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.clear(within(dialog).getByLabelText("备注"));
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const { beginsAt, endsAt } = reservation;
  expect(sent[0]).toEqual({ projectId: "project-1", environmentIds: ["env-1"], beginsAt, endsAt, note: "" });
  await userEvent.click(screen.getByRole("button", { name: "删除预留“论文截止”" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "删除" }));
  await waitFor(() => expect(sent[1]).toBe("deleted"));
});

test("weeks begin on Monday, and a window touches each day that it has a part of", () => {
  const november = listWeeks(new Date(2026, 10, 23), "month");
  expect(november.map((week) => formatDateInput(week[0] as Date))).toEqual([
    "2026-10-26",
    "2026-11-02",
    "2026-11-09",
    "2026-11-16",
    "2026-11-23",
    "2026-11-30",
  ]);
  expect(
    listWeeks(new Date(2026, 10, 22), "week")
      .flat()
      .map(formatDateInput)
      .at(-1),
  ).toBe("2026-11-22");
  const days = november.flat().filter((day) => overlapsDay(reservation, day));
  expect(days.map(formatDateInput)).toEqual(["2026-11-24", "2026-11-25"]);
});

test("moments go through the form unchanged; what is no moment is the platform's to refuse", () => {
  expect(parseDateTimeInput(formatDateTimeInput(new Date(reservation.beginsAt)))).toBe(reservation.beginsAt);
  expect(parseDateTimeInput("tomorrow")).toBe("tomorrow");
  expect(formatDateInput(parseDateInput("nonsense", new Date(2026, 10, 23, 17)))).toBe("2026-11-23");
});
