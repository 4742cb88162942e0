// page_test.mjs PROGRAM GROW [--pictures FOLDER] [CASE]: the page in Chromium: real runs of real
// replicas, and what a person would look for in them. Exit 77 where Chromium or playwright-core is
// missing. With --pictures it also renews the pictures of the documentation.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const [program, grow, ...rest] = process.argv.slice(2).map((one, i) => (i < 2 ? resolve(one) : one));
const pictures = rest[0] === "--pictures" ? resolve(rest.splice(0, 2)[1]) : null;
const only = rest[0] || "";
const require = createRequire(join(root, "build/browser/"));
const browsers = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = process.env.DILOCO_BROWSER || browsers.find(existsSync);
let chromium;
try { ({ chromium } = require("playwright-core")); } catch { /* said below */ }
if (!executablePath || !chromium) {
  console.log(`left out: the page in a browser (no ${executablePath ? "playwright-core in build/browser" : "Chromium"}: scripts/packages.sh browser)`);
  process.exit(77);
}

// ---- runs

const work = mkdtempSync(join(tmpdir(), "diloco-page-"));
const started = new Set();
const children = (pid) => {
  try { return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number); } catch { return []; }
};
const kill = (pid, signal) => { try { process.kill(pid, signal); } catch { /* it has ended */ } };
const killAll = (pid) => { for (const child of children(pid)) killAll(child); kill(pid, "SIGCONT"); kill(pid, "SIGKILL"); };
const sleep = (ms) => new Promise((go) => setTimeout(go, ms));

// Four replicas of a model that trains a step in milliseconds.
writeFileSync(join(work, "text.txt"), readFileSync(join(root, "docs/protocol.md")).subarray(0, 65536));
writeFileSync(join(work, "tiny.toml"), `preset = "diloco"
[run]
replicas = 4
threads = 1
heartbeat = 0.5
patience = 60
[trainer]
rounds = 8
local_steps_per_round = 10
batch_size = 2
eval_every = 1
eval_batches = 2
[parameters.model]
layers = 1
heads = 2
channels = 32
context = 32
[data]
train_path = "text.txt"
`);
const start = (...args) => {
  const child = spawn(program, args, { cwd: work, stdio: ["ignore", "pipe", "pipe"] });
  child.said = "";
  child.stdout.on("data", (text) => { child.said += text; });
  child.stderr.on("data", (text) => { child.said += text; });
  child.ended = new Promise((go) => child.on("exit", go));
  started.add(child.pid);
  return child;
};
const train = (store, ...more) => start("train", "tiny.toml", "--store", store, "--quiet", ...more);
const trained = async (store, ...more) => {
  if (existsSync(join(work, store, "end"))) return;
  const run = train(store, ...more);
  must((await run.ended) === 0, `training ${store}: ${run.said}`);
};
const until = async (what, is, limit = 120) => {
  for (let i = 0; i < 20 * limit; i++) {
    const value = await is();
    if (value) return value;
    await sleep(50);
  }
  throw new Error(`${what}: not after ${limit} s`);
};
const address = (server) => until("the server's address", () => (server.said.match(/http:\/\/\S+#token=\S+|http:\/\/[\d.:]+(?=\/NAME)/) || [])[0]);
const entries = (store) => { try { return readdirSync(join(work, store, "log")).length; } catch { return 0; } };
const generations = (store) => { try { return readdirSync(join(work, store, "gen")).length; } catch { return 0; } };
const must = (is, text) => { if (!is) throw new Error(text); };

// A fake run, on the first entry of a real one.
const fake = async (store, n, replicas, ...more) => {
  if (existsSync(join(work, store))) return;
  const run = train(store, "--set", `trainer.rounds=${n + 5}`, "--set", "trainer.local_steps_per_round=1");
  await until("an entry", () => entries(store) > 0);
  killAll(run.pid);
  await run.ended;
  for (const name of readdirSync(join(work, store, "log"))) if (name !== "0000000000.json") rmSync(join(work, store, "log", name));
  const made = spawnSync(grow, [store, n, replicas, ...more], { cwd: work, encoding: "utf8" });
  must(made.status === 0, `grow: ${made.stderr}`);
};

// ---- pages

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const opened = async (url, options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1000, height: 760 }, colorScheme: "light", ...options });
  const page = await context.newPage();
  page.problems = [];
  page.asked = [];
  page.on("pageerror", (error) => page.problems.push(error.message));
  page.on("console", (m) => { if (m.type() === "error" && !/401|404|Failed to load resource/.test(m.text())) page.problems.push(m.text()); });
  page.on("dialog", (dialog) => { page.problems.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => page.asked.push(request.url()));
  await page.goto(url);
  return page;
};
const ready = (page) => page.waitForFunction(() => document.documentElement.dataset.ready === "yes");
const says = (page, text) => page.getByText(text).first().waitFor();
const closed = async (page) => {
  must(page.problems.length === 0, `the page has errors: ${page.problems.join("; ")}`);
  await page.context().close();
};
const picture = async (page, name, part) => {
  const folder = pictures || join(root, "build/browser/pictures");
  mkdirSync(folder, { recursive: true });
  await page.evaluate(() => scrollTo(0, 0));
  const bytes = await (part || page).screenshot({ path: join(folder, `${name}.png`) });
  // Of a living run the size varies; only what docs/ keeps has to be small.
  if (pictures) must(bytes.length < 100000, `${name}.png has ${bytes.length} bytes: take it again`);
};
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const accessible = async (page, where) => {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  must(serious.length === 0, `${where}: ${serious.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(" | ")}`).join("; ")}`);
};
const ui = async (...args) => {
  const server = start("ui", ...args, "--no-browser");
  return { server, url: await address(server) };
};

// ---- cases

const cases = {
  async running_run_is_well_and_grows_without_reload() {
    const run = train("running", "--set", "trainer.rounds=4000");
    await until("two entries", () => entries("running") >= 2);
    const { server, url } = await ui("running");
    const page = await opened(url);
    await ready(page);
    await says(page, /4 of 4 replicas alive/);
    const shown = () => page.locator("dt:has-text('Entries') + dd").innerText().then((text) => +text.replaceAll(",", "").match(/\d+/)[0]);
    const before = await shown();
    await until("more entries on the page", async () => (await shown()) > before + 2);
    must(page.asked.filter((one) => new URL(one).pathname === "/").length === 1, "the page was loaded again");
    must(!(await page.url()).includes("token"), "the token is still in the address");
    await until("the replicas' records", () => page.locator("canvas.lanes").count());
    await picture(page, "page-running");
    await closed(page);
    killAll(run.pid);
    killAll(server.pid);
  },

  async lost_replica_is_named_with_what_the_run_does() {
    const run = train("lost", "--set", "trainer.rounds=4000", "--replicas", "3", "--set", "run.replicas=4");
    await until("three replicas", () => generations("lost") >= 3); // join takes a name that is free
    const fourth = start("join", "lost", "--set", "data.train_path=text.txt", "--quiet");
    await until("two entries", () => entries("lost") >= 2);
    const words = readFileSync(`/proc/${children(fourth.pid)[0]}/cmdline`, "utf8").split("\0");
    const name = words[words.indexOf("replica") + 1];
    killAll(fourth.pid);
    const { server, url } = await ui("lost");
    const page = await opened(url);
    await page.locator(".findings .bad, .findings .warn").filter({ hasText: `${name} is lost` }).waitFor({ timeout: 60000 });
    const text = await page.locator(".findings").innerText();
    must(/The others wait for it until its heartbeat is 60 s old \(run\.patience\)/.test(text), `no reason: ${text}`);
    await says(page, /3 of 4 replicas alive/);
    await page.locator("td .state.silent").waitFor();
    await picture(page, "page-lost");
    await closed(page);
    killAll(run.pid);
    killAll(server.pid);
  },

  async finished_run_has_its_curve_its_lanes_and_its_log() {
    await trained("finished");
    const { server, url } = await ui("finished");
    const page = await opened(url);
    await ready(page);
    await says(page, "The run is complete: 8 entries.");
    must((await page.locator(".findings .bad").count()) === 0, "something is wrong with it");
    await says(page, "The chain of 8 entries is whole");
    must((await page.locator("tbody tr", { has: page.locator("code") }).filter({ hasText: "commit" }).count()) === 8, "the log has other than 8 rows");
    for (const axis of ["tokens", "time", "bytes", "entry", "position"]) {
      await page.getByLabel("against", { exact: true }).selectOption(axis);
      must((await page.locator("section", { has: page.getByRole("heading", { name: "Loss" }) }).locator("path.series").count()) >= 2, `no curves against ${axis}`);
    }
    await says(page, "Entries 0 to 7; the newest is 7.");
    await page.getByText("What the words mean").press("Enter"); // not by its place, which a table above it may move
    await says(page, "Length of the newest contribution");
    await says(page, "no replica has reported the value so far");
    await says(page, "These numbers are of all replicas together");
    must(/mean over the replicas/.test(await page.locator(".tiles dt", { hasText: /^Loss$/ }).getAttribute("title")), "the loss does not say whose it is");
    await page.getByText("The same as a table").click();
    await page.locator("details tbody tr").first().waitFor();
    must((await page.locator("details tbody tr").count()) === 4, "the table of lanes has other than 4 replicas");
    const heads = await page.locator("details thead th").allInnerTexts();
    for (const name of ["norm", "cosine"])
      for (const row of await page.locator("details tbody tr").all())
        must(/^-?[\d.]+(e-?\d+)?$/.test(await row.locator("td").nth(heads.indexOf(name)).innerText()), `a member has no ${name}`);
    for (const label of ["Cosine of each replica's contribution with the combined update", "Norm of each replica's contribution"])
      must((await page.locator(`svg[aria-label^="${label}"] path.series`).count()) === 4, `other than 4 curves: ${label}`);
    await page.getByText("The same as a table").click();
    await page.getByLabel(/Find/).fill("outer_learning_rate");
    await says(page, "server.diloco.outer_learning_rate");
    const price = await page.getByLabel("Price of a GB that is read").elementHandle();
    await price.fill("0.09");
    await price.press("Enter");
    await says(page, "all replicas so far:");
    must(await price.evaluate((field) => field.isConnected), "a field that is being filled in was redrawn");
    must(page.asked.every((one) => new URL(one).origin === new URL(url).origin || one.startsWith("data:")), "the page asked elsewhere");
    await picture(page, "page-finished");
    await closed(page);
    killAll(server.pid);
  },

  async killed_process_has_died_and_its_replica_has_joined_again() {
    const run = train("killed");
    await until("an entry", () => entries("killed") > 0 && children(run.pid).length === 4);
    kill(children(run.pid)[0], "SIGKILL");
    must((await run.ended) === 0, `training: ${run.said}`);
    const { server, url } = await ui("killed");
    const page = await opened(url);
    await ready(page);
    const happened = page.locator("section", { has: page.getByRole("heading", { name: "What happened" }) });
    await happened.getByRole("cell", { name: "died", exact: true }).waitFor();
    must((await happened.getByRole("cell", { name: "joined", exact: true }).count()) >= 4, "the replicas have not joined");
    must((await happened.getByRole("cell", { name: "left", exact: true }).count()) === 4, "the replicas have not left");
    await closed(page);
    killAll(server.pid);
  },

  async report_is_one_file_that_needs_no_server() {
    await trained("finished");
    await trained("other", "--set", "trainer.rounds=4");
    for (const [name, ...more] of [["one"], ["two", "--compare", "other"]]) {
      const made = spawnSync(program, ["report", "finished", ...more, "--out", `${name}.html`], { cwd: work, encoding: "utf8" });
      must(made.status === 0, made.stderr);
    }
    const page = await opened(`file://${join(work, "one.html")}`);
    await ready(page);
    await says(page, "The run is complete: 8 entries.");
    await says(page, "How to repeat it");
    must((await page.locator("canvas.lanes").count()) === 1, "no timeline");
    must((await page.locator("tbody tr", { has: page.locator("code") }).filter({ hasText: "commit" }).count()) === 8, "the log has other than 8 rows");
    await accessible(page, "a report");
    must(page.asked.every((one) => one.startsWith("file:") || one.startsWith("data:")), `it asked for ${page.asked}`);
    await closed(page);
    const both = await opened(`file://${join(work, "two.html")}`);
    await both.getByRole("heading", { name: "Compare" }).waitFor();
    must((await both.locator("section").first().locator("path.series").count()) === 2, "not two curves");
    await closed(both);
  },

  async slow_replica_is_named_with_its_reason() {
    await fake("slow", 12, 4, "slow");
    const { server, url } = await ui("slow");
    const page = await opened(url);
    await ready(page);
    const text = await page.locator(".findings").innerText();
    must(text.includes("r2 is slow: it trains 9 s for an entry, 3 times as long as the others (3 s). The others wait 61 % of their time."), `it says: ${text}`);
    must(!/r[013] is slow/.test(text), `it says: ${text}`);
    await picture(page, "page-slow", page.locator(".findings"));
    await picture(page, "page-lanes", page.locator("section", { has: page.locator("canvas.lanes") }));
    await closed(page);
    killAll(server.pid);
  },

  async wrong_token_shows_nothing_and_the_right_one_all_runs() {
    await trained("hub/first");
    await trained("hub/second");
    writeFileSync(join(work, "tokens"), "correct-horse-battery\n");
    const server = start("serve", "hub", "--listen", "127.0.0.1:0", "--token-file", "tokens");
    const url = await address(server);
    const page = await opened(`${url}/`);
    await says(page, "A token, please");
    await page.getByLabel("Token").fill("correct-horse-batterY");
    await page.getByRole("button", { name: "Show the runs" }).click();
    await says(page, "The hub does not know this token.");
    must(!(await page.content()).includes("first"), "a run is named");
    await accessible(page, "the form for a token");
    await picture(page, "page-token");
    await page.getByLabel("Token").fill("correct-horse-battery");
    await page.getByRole("button", { name: "Show the runs" }).click();
    await page.getByRole("link", { name: "second" }).waitFor();
    await accessible(page, "the list of runs");
    await picture(page, "page-runs");
    await page.getByLabel("choose first").check();
    await page.getByLabel("choose second").check();
    await page.getByRole("button", { name: "Compare the chosen runs" }).click();
    await page.getByRole("heading", { name: "Compare" }).waitFor();
    await until("two curves", async () => (await page.locator("section").first().locator("path.series").count()) === 2);
    await accessible(page, "the comparison");
    await page.goto(`${url}/#/run/none`);
    await says(page, "there is no such run");
    await closed(page);
    killAll(server.pid);
  },

  async hostile_texts_stay_texts() {
    await fake("hostile", 20, 4, "hostile");
    const { server, url } = await ui("hostile");
    const page = await opened(url);
    await ready(page);
    await says(page, "<img src=x onerror=window.owned=1>");
    await says(page, /of the newest 8 entries were aborted\. The last reason: <img src=x onerror="window\.owned=1">/);
    await says(page, /<script>window\.owned=1<\/script>/);
    must((await page.evaluate(() => window.owned)) === undefined, "a script of the run has run");
    must((await page.locator("img, script:not([src]), main svg svg").count()) === 0, "a text has become an element");
    must((await page.locator("bdi", { hasText: "onerror" }).count()) > 3, "a foreign text is not isolated");
    await closed(page);
    killAll(server.pid);
    must(spawnSync(program, ["report", "hostile", "--out", "hostile.html"], { cwd: work }).status === 0, "no report");
    const file = await opened(`file://${join(work, "hostile.html")}`);
    await ready(file);
    await says(file, "<img src=x onerror=window.owned=1>");
    must((await file.evaluate(() => window.owned)) === undefined, "a script of the run has run in its report");
    must((await file.locator("img, main svg svg").count()) === 0, "a text has become an element of the report");
    await closed(file);
  },

  async keyboard_screen_reader_and_phone_are_served() {
    await trained("finished");
    const { server, url } = await ui("finished");
    for (const colorScheme of ["light", "dark"]) {
      const page = await opened(url, { colorScheme });
      await ready(page);
      must((await page.evaluate(() => document.documentElement.dataset.theme)) === colorScheme, `not ${colorScheme}`);
      await accessible(page, `a run, ${colorScheme}`);
      if (colorScheme === "dark") await picture(page, "page-dark");
      await closed(page);
    }
    const page = await opened(url);
    await ready(page);
    await page.keyboard.press("Tab");
    must((await page.evaluate(() => document.activeElement.textContent)) === "Skip to the content", "the first stop is no skip link");
    const chart = page.locator(".chart svg").first();
    await chart.focus();
    await page.keyboard.press("Home");
    const first = await page.locator(".readout").first().innerText();
    await page.keyboard.press("ArrowRight");
    must(first.length > 0 && (await page.locator(".readout").first().innerText()) !== first, "the arrow keys read no points");
    await page.locator("canvas.lanes").focus();
    const lanes = () => page.locator("canvas.lanes").getAttribute("aria-label");
    const before = await lanes();
    await page.keyboard.press("+");
    await until("closer lanes", async () => (await lanes()) !== before);
    await closed(page);
    const phone = await opened(url, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 1, isMobile: true, hasTouch: true });
    await ready(phone);
    must((await phone.evaluate(() => document.documentElement.scrollWidth)) <= 360, "the page is wider than a phone");
    await accessible(phone, "a run on a phone");
    await picture(phone, "page-phone");
    await closed(phone);
    killAll(server.pid);
  },

  async long_run_of_many_replicas_is_drawn_whole() {
    await fake("long", 2000, 32);
    const { server, url } = await ui("long");
    const page = await opened(url);
    await until("all entries", async () => /2,000 of/.test(await page.locator("dt:has-text('Entries') + dd").innerText().catch(() => "")));
    await page.getByRole("button", { name: "All", exact: true }).click();
    await until("all lanes", async () => /entries 0 to 2000/.test(await page.locator("canvas.lanes").getAttribute("aria-label").catch(() => "")));
    must((await page.locator("section").first().locator("circle").count()) < 500, "every entry is an element");
    await closed(page);
    killAll(server.pid);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  if (!name.includes(only)) continue;
  const began = Date.now();
  try {
    await run();
    console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name}: ${error.message}\n${(error.stack || "").split("\n").slice(1, 4).join("\n")}`);
    for (const context of browser.contexts()) {
      const page = context.pages()[0];
      if (page) await page.screenshot({ path: join(root, "build/browser", `failed-${name}.png`) }).catch(() => {});
      await context.close();
    }
  }
  for (const pid of started) killAll(pid);
  started.clear();
}
await browser.close();
rmSync(work, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
