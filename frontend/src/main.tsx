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
// The session, the page's files and the texts are requested at the same time, not one after the other.
const started = startLanguage();
const client = createQueryClient();
if (location.pathname !== "/sign-in") client.query(meQuery).catch(() => undefined); // Shell shows the error
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
