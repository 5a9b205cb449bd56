// The platform under test: the one that FERMI_E2E_URL and FERMI_E2E_LINK name, else one of our own on fresh data.
import { spawn, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { homedir, tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PYTHON = process.env.FERMI_PYTHON ?? join(ROOT, ".venv/bin/python");
const READY_MS = 360_000;

/**
 * `{ url, link, stop() }`; `link` signs in once. Of a platform of our own also `seed(environments)`, or with what another
 * file makes, `signInLink()`, a further one-time link, `token()`, the administrator's, `signal(part, name)`, which sends one of its processes a signal, and
 * `write(name, text)`, which makes a file in the workspace, where tasks may read, and gives its path.
 * `trains`: much is trained there, so one process stands by with PyTorch imported. `settings`: further variables.
 */
export async function platform({ trains = false, settings = {} } = {}) {
  const { FERMI_E2E_URL: url, FERMI_E2E_LINK: link } = process.env;
  if (url && link) return { url, link, stop: async () => undefined };
  const data = mkdtempSync(join(tmpdir(), "fermi-e2e-"));
  const port = await freePort();
  const env = {
    ...process.env,
    ...homeOfItsOwn(),
    PYTHONPATH: [ROOT, join(ROOT, "platform")].join(":"),
    FERMI_DATA: data,
    FERMI_DATA_ROOTS: join(ROOT, "docs"),
    FERMI_HOST: "127.0.0.1",
    FERMI_PORT: String(port),
    FERMI_MASTER_PORTS: masterPorts(),
    FERMI_STAND_BY: trains ? "1" : "0",
    FERMI_RATE_LIMIT: "0",
    ...settings,
  };
  if (process.env.FERMI_TEST_DATA) {
    const done = spawnSync(PYTHON, ["-m", "tests.platform_process", data], { cwd: ROOT, env, encoding: "utf8" });
    if (done.status !== 0) throw new Error(`no database was prepared:\n${done.stderr}`);
  }
  const up = spawn(PYTHON, ["-m", "server.up"], { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((resolve) => up.once("exit", resolve));
  const stop = async () => {
    up.kill("SIGTERM");
    await ended;
    spawnSync(PYTHON, ["-m", "server.up", "down"], { cwd: ROOT, env, stdio: "ignore" });
    rmSync(data, { recursive: true, force: true });
    rmSync(env.HOME, { recursive: true, force: true });
  };
  const seed = (environments, file = "seed.py") => {
    const done = spawnSync(PYTHON, ["manage.py", "shell"], {
      cwd: ROOT,
      env: { ...env, FERMI_SEED: String(environments) },
      input: readFileSync(join(HERE, file)),
      encoding: "utf8",
    });
    if (done.status !== 0) throw new Error(`seeding failed:\n${done.stderr}`);
  };
  try {
    const found = await announced(up);
    const signInLink = () => {
      const done = spawnSync(PYTHON, ["manage.py", "login_link"], { cwd: ROOT, env, encoding: "utf8" });
      if (done.status !== 0) throw new Error(`no sign-in link was made:\n${done.stderr}`);
      return new URL(JSON.parse(done.stdout.trim().split("\n").at(-1)).signInLink, found.url).href;
    };
    const token = () => readFileSync(join(data, "token"), "utf8").trim();
    const signal = (part, name) => {
      const known = JSON.parse(readFileSync(join(data, "run/processes.json"), "utf8"));
      process.kill(known.find((each) => each.name === part).pid, name);
    };
    const write = (name, text) => {
      const path = join(data, "workspace", name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
      return path;
    };
    return { ...found, stop, seed, signInLink, token, signal, write };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** No profile of a person's is run by its shells; what was downloaded once is found (tests/clean_environment.py, `make_home`). */
function homeOfItsOwn() {
  const home = mkdtempSync(join(tmpdir(), "fermi-e2e-home-"));
  const cache = join(homedir(), ".cache");
  if (existsSync(cache)) symlinkSync(cache, join(home, ".cache"));
  return { HOME: home, XDG_CONFIG_HOME: join(home, ".config"), BASH_ENV: "", ENV: "", ZDOTDIR: home };
}

function announced(up) {
  let said = "";
  return new Promise((resolve, reject) => {
    const fail = (why) => reject(new Error(`the platform ${why}:\n${said}`));
    const timer = setTimeout(() => fail("did not say that it serves"), READY_MS);
    const read = (chunk) => {
      said += chunk;
      const link = /https?:\/\/\S+\/auth\/link\/\S+/.exec(said)?.[0];
      if (!link) return;
      clearTimeout(timer);
      resolve({ url: new URL(link).origin, link });
    };
    up.stdout.on("data", read);
    up.stderr.on("data", read);
    up.once("exit", () => fail("ended"));
  });
}

/** A hundred ports of each test file's own: two of them run at once. */
function masterPorts() {
  const files = readdirSync(HERE).filter((name) => name.endsWith(".test.js"));
  const first = 28_000 + 100 * files.sort().indexOf(basename(process.argv[1]));
  return `${first}-${first + 99}`;
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
