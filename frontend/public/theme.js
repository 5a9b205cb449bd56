// Runs before the first paint, so that nobody who chose dark is flashed with light, and who signs in sees no outline of
// a page. A file, not inline: CSP.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem("fermi.theme");
  } catch {
    // Storage is off: follow the system.
  }
  var dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  if (location.pathname === "/sign-in") document.documentElement.dataset.bare = "";
})();
