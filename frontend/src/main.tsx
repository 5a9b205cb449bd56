import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createBrowserRouter } from "react-router";
import { RouterProvider } from "react-router/dom";
import { meQuery } from "./api/session";
import { createQueryClient } from "./app/query-client";
import { routes } from "./app/routes";
import { ToastArea } from "./app/toaster";
import { startLanguage } from "./i18n";
import "./styles.css";

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root");
const page = createRoot(root);
// What a first page needs is asked for at once and not one after the other: who it is, the page's files, the language's.
const started = startLanguage();
const client = createQueryClient();
if (location.pathname !== "/sign-in") client.query(meQuery).catch(() => undefined); // the frame says it
const router = createBrowserRouter(routes);
void started.then(() =>
  page.render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <RouterProvider router={router} />
        <ToastArea />
      </QueryClientProvider>
    </StrictMode>,
  ),
);
