import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createBrowserRouter } from "react-router";
import { RouterProvider } from "react-router/dom";
import { createClient } from "./app/query";
import { routes } from "./app/routes";
import { Notices } from "./app/notices";
import { startLanguage } from "./i18n";
import "./styles.css";

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root");
const page = createRoot(root);
void startLanguage().then(() =>
  page.render(
    <StrictMode>
      <QueryClientProvider client={createClient()}>
        <RouterProvider router={createBrowserRouter(routes)} />
        <Notices />
      </QueryClientProvider>
    </StrictMode>,
  ),
);
