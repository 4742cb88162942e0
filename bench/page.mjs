// page.mjs PROGRAM STORE [URL]: how soon the page of a run is drawn, cold and then warm, and what the
// answers take: bench/page.md.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const require = createRequire(join(root, "build/browser/"));
const { chromium } = require("playwright-core");
const [program, store] = process.argv.slice(2);
const server = spawn(program, ["ui", store, "--no-browser"], { stdio: ["ignore", "pipe", "inherit"] });
const url = await new Promise((go) => {
  let said = "";
  server.stdout.on("data", (text) => {
    said += text;
    const found = said.match(/http:\/\/\S+#token=\S+/);
    if (found) go(found[0]);
  });
});
const browser = await chromium.launch({ executablePath: process.env.DILOCO_BROWSER || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
// In the page, so that the clock is the browser's own.
const watch = () => {
  window.seen = {};
  const look = () => {
    const headline = document.getElementById("headline"), lanes = document.querySelector("canvas.lanes");
    const now = performance.now();
    if (headline && !window.seen.first) window.seen.first = now;
    if (headline && !headline.parentNode.textContent.includes("Reading") && lanes && !window.seen.whole) window.seen.whole = now;
    if (!window.seen.whole) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
};
const measure = async (name) => {
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  const sizes = [];
  page.on("response", async (answer) => {
    if (answer.url().includes("/.page/run?")) sizes.push((await answer.body().catch(() => "")).length);
  });
  await page.addInitScript(watch);
  await page.goto(url);
  await page.waitForFunction(() => window.seen && window.seen.whole, null, { timeout: 400000 });
  const seen = await page.evaluate(() => window.seen);
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.waitForTimeout(1500);
  const frames = await page.evaluate(() => new Promise((go) => {
    const longest = { ms: 0 };
    let last = performance.now(), n = 0;
    const next = (now) => { longest.ms = Math.max(longest.ms, now - last); last = now; ++n < 300 ? requestAnimationFrame(next) : go(longest.ms); };
    requestAnimationFrame(next);
  }));
  console.log(`${name}: first drawing ${Math.round(seen.first)} ms, everything ${Math.round(seen.whole)} ms, ` +
    `${sizes.length} answers of at most ${Math.round(Math.max(...sizes) / 1000)} kB, longest frame of 300 ${Math.round(frames)} ms`);
  await page.close();
};
// Processor time of the page's own thread for one redraw of all that is shown, by parts.
const redraw = async () => {
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector("canvas.lanes"));
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const metrics = async () => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map((m) => [m.name, m.value]));
  await page.waitForTimeout(7000);
  const before = await metrics();
  const times = 10;
  for (let i = 0; i < times; i++) {
    await page.evaluate(() => dispatchEvent(new Event("resize")));
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  const after = await metrics();
  const ms = (name) => Math.round(1000 * (after[name] - before[name]) / times);
  console.log(`a redraw: ${ms("TaskDuration")} ms, of it script ${ms("ScriptDuration")}, style ${ms("RecalcStyleDuration")}, layout ${ms("LayoutDuration")}`);
  await page.close();
};
await measure("cold");
await measure("warm");
await measure("warm");
await redraw();
await browser.close();
server.kill();
