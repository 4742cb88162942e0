// page.js: the page of a hub's runs, or of the runs that `diloco ui` shows. It reads JSON from
// /.page/ and hears of new entries by /events. Every text of a run is hostile: it reaches the document
// as a text node and in no other way.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07800", "#2f8fc4", "#8c6d31", "#7f7f7f"];
  const report = window.dilocoReport || null; // a report is this page with its data in it
  const main = document.getElementById("main");
  const live = document.getElementById("live");

  // ---- elements

  const add = (to, children) => {
    for (const child of children.flat()) {
      if (child === null || child === undefined) continue;
      to.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return to;
  };
  const set = (element, attributes) => {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    return element;
  };
  const h = (tag, attributes = {}, ...children) => add(set(document.createElement(tag), attributes), children);
  const s = (tag, attributes = {}, ...children) => add(set(document.createElementNS(SVG, tag), attributes), children);
  // What a run says of itself may have characters that turn the direction of what follows.
  const foreign = (text) => h("bdi", {}, text === null || text === undefined || text === "" ? "–" : String(text));

  // ---- numbers for people

  const known = (x) => typeof x === "number" && Number.isFinite(x);
  const grouped = new Intl.NumberFormat("en-US"); // made once: toLocaleString makes one for each number
  const number = (x, digits = 4) => {
    if (!known(x)) return "–";
    if (Number.isInteger(x) && Math.abs(x) < 1e15) return grouped.format(x);
    return Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(digits));
  };
  const scaled = (x, unit) => {
    if (!known(x)) return "–";
    const units = ["", "k", "M", "G", "T", "P"];
    let i = 0;
    for (; Math.abs(x) >= 999.5 && i < units.length - 1; i++) x /= 1000;
    return `${+x.toPrecision(3)} ${units[i]}${unit}`.trim();
  };
  const bytes = (x) => scaled(x, "B");
  const duration = (x) => {
    if (!known(x)) return "–";
    if (x < 0.0995) return `${+(1000 * x).toPrecision(2)} ms`;
    if (x < 120) return `${+x.toPrecision(3)} s`;
    if (x < 3570) return `${Math.floor(Math.round(x) / 60)} min${Math.round(x) % 60 ? ` ${Math.round(x) % 60} s` : ""}`;
    if (x < 7200) return `${Math.round(x / 60)} min`;
    if (x < 172800) return `${+(x / 3600).toPrecision(3)} h`;
    return `${+(x / 86400).toPrecision(3)} days`;
  };
  // Nothing is left of a complete run, and of a stopped one it is not known.
  const left = (run) => (["complete", "stopped"].includes(run.state) ? "–" : duration(run.left_s));
  const clock = (x) => (known(x) && x > 0 ? new Date(1000 * x).toLocaleString() : "–");
  const percent = (x) => (known(x) ? `${Math.round(100 * x)} %` : "–");

  // ---- the server

  let token = null;
  try { token = sessionStorage.getItem("token"); } catch { /* a browser may keep nothing */ }
  const keep = (value) => {
    token = value;
    try { value ? sessionStorage.setItem("token", value) : sessionStorage.removeItem("token"); } catch { /* likewise */ }
  };
  const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});
  class Refused extends Error {
    constructor(status, text) { super(text); this.status = status; }
  }
  const ask = async (path, parameters = {}) => {
    if (report) return report.answers[path.slice(7) + (parameters.run ? ` ${parameters.run}` : "")];
    const query = new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== undefined));
    const answer = await fetch(`${path}?${query}`, { headers: headers(), cache: "no-store" });
    if (!answer.ok) throw new Refused(answer.status, (await answer.text()).slice(0, 300));
    return answer.json();
  };

  // Calls `changed` for what /events tells of a run, until the signal aborts.
  const follow = async (run, changed, signal) => {
    while (!signal.aborted) {
      try {
        const query = new URLSearchParams([["run", run], ["prefix", "log/"], ["prefix", "gen/"], ["prefix", "end/"]]);
        const answer = await fetch(`/events?${query}`, { headers: headers(), signal, cache: "no-store" });
        if (!answer.ok) throw new Refused(answer.status, "");
        live.textContent = "live";
        const reader = answer.body.getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          if (value.some((byte) => byte === 100)) changed(); // "data: …", not ": still here"? either is cheap
        }
      } catch (error) {
        if (signal.aborted) return;
      }
      live.textContent = "connection lost, trying again";
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  };

  // ---- charts

  const niceStep = (least) => {
    const power = 10 ** Math.floor(Math.log10(least));
    return power * ([1, 2, 5].find((k) => k * power >= least * (1 - 1e-9)) || 10);
  };
  const axisOf = (values, n) => {
    let low = Infinity, high = -Infinity;
    for (const v of values) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    if (low > high) { low = 0; high = 1; }
    if (low === high) { high = low + Math.max(Math.abs(low) / 10, 1e-3); }
    const step = niceStep((high - low) / n);
    low = Math.floor(low / step + 1e-9) * step;
    high = Math.ceil(high / step - 1e-9) * step;
    const ticks = [];
    for (let t = low; t <= high + step / 2; t += step) ticks.push(Math.abs(t) < step / 1e6 ? 0 : t);
    return { low, high, ticks };
  };
  const pathOf = (xs, ys, X, Y) => {
    let d = "", pen = false;
    for (let i = 0; i < xs.length; i++) {
      if (!known(xs[i]) || !known(ys[i])) { pen = pen && ys[i] === undefined; continue; }
      d += `${pen ? "L" : "M"}${X(xs[i]).toFixed(1)} ${Y(ys[i]).toFixed(1)}`;
      pen = true;
    }
    return d;
  };
  // series: [{label, xs, ys, colour, dash, low, high, dots, gaps: false}]; missing values are joined over.
  const lineChart = (place, { label, series, xName, xText, title }) => {
    const W = Math.max(300, Math.min(1400, place.clientWidth || 760)), H = W < 500 ? 210 : 250, left = 62, right = 14, top = 10, bottom = 40;
    const drawn = series.map((one) => {
      const kept = { ...one, xs: [], ys: [] };
      for (let i = 0; i < one.xs.length; i++)
        if (known(one.xs[i]) && known(one.ys[i])) { kept.xs.push(one.xs[i]); kept.ys.push(one.ys[i]); }
      return kept;
    }).filter((one) => one.xs.length);
    if (!drawn.length) {
      place.replaceChildren(h("p", { class: "soft" }, `${label}: nothing is known yet.`));
      return;
    }
    const x = axisOf(drawn.flatMap((one) => [one.xs[0], one.xs[one.xs.length - 1]]), 6);
    const y = axisOf(drawn.flatMap((one) => one.ys), 5);
    const X = (v) => left + (W - left - right) * (v - x.low) / (x.high - x.low);
    const Y = (v) => top + (H - top - bottom) * (1 - (v - y.low) / (y.high - y.low));
    const last = drawn.map((one) => `${one.label} ${number(one.ys[one.ys.length - 1])}`).join(", ");
    const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: "0",
      "aria-label": `${label} against ${xName}. Last: ${last}. Left and right arrow keys read single points.` });
    for (const t of y.ticks) {
      svg.append(s("line", { class: "grid", x1: left, x2: W - right, y1: Y(t), y2: Y(t) }));
      svg.append(s("text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end" }, number(t)));
    }
    for (const t of x.ticks) {
      svg.append(s("line", { class: "grid", x1: X(t), x2: X(t), y1: top, y2: H - bottom }));
      svg.append(s("text", { x: X(t), y: H - bottom + 16, "text-anchor": "middle" }, xText(t)));
    }
    svg.append(s("text", { x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }, xName));
    svg.append(s("text", { x: 12, y: top + 4, "text-anchor": "start" }, ""));
    for (const one of drawn) {
      if (one.low) {
        const up = [], down = [];
        one.low.forEach((v, i) => {
          if (known(v) && known(one.bandX[i])) {
            up.push(`${X(one.bandX[i]).toFixed(1)} ${Y(Math.min(one.high[i], y.high)).toFixed(1)}`);
            down.unshift(`${X(one.bandX[i]).toFixed(1)} ${Y(Math.max(v, y.low)).toFixed(1)}`);
          }
        });
        if (up.length > 1) svg.append(s("path", { class: "band", fill: one.colour, d: `M${up.join("L")}L${down.join("L")}Z` }));
      }
      svg.append(s("path", { class: "series", stroke: one.colour, "stroke-dasharray": one.dash, d: pathOf(one.xs, one.ys, X, Y) }));
      if (one.dots || one.xs.length === 1)
        for (let i = 0; i < one.xs.length && one.xs.length < 200; i++)
          svg.append(s("circle", { cx: X(one.xs[i]), cy: Y(one.ys[i]), r: 3, fill: one.colour }));
    }
    const cursor = s("line", { class: "cursor", x1: 0, x2: 0, y1: top, y2: H - bottom, visibility: "hidden" });
    svg.append(cursor);
    const readout = h("p", { class: "readout", "aria-live": "polite" });
    let at = null;
    const longest = drawn.reduce((a, b) => (b.xs.length > a.xs.length ? b : a));
    const nearest = (xs, v) => {
      let lo = 0, hi = xs.length - 1;
      while (lo < hi) { const m = (lo + hi) >> 1; if (xs[m] < v) lo = m + 1; else hi = m; }
      return lo > 0 && v - xs[lo - 1] < xs[lo] - v ? lo - 1 : lo;
    };
    const show = (v) => {
      cursor.setAttribute("x1", X(v)); cursor.setAttribute("x2", X(v)); cursor.setAttribute("visibility", "visible");
      readout.textContent = `${xName} ${xText(v)}: ` +
        drawn.map((one) => `${one.label} ${number(one.ys[nearest(one.xs, v)])}`).join(", ");
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const v = x.low + (x.high - x.low) * ((event.clientX - box.left) / box.width * W - left) / (W - left - right);
      at = nearest(longest.xs, v);
      show(longest.xs[at]);
    });
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      at = Math.max(0, Math.min(longest.xs.length - 1, (at === null ? longest.xs.length - 1 : at) + by));
      show(longest.xs[at]);
    });
    const legend = h("ul", { class: "legend" }, drawn.map((one) => h("li", {},
      s("svg", { viewBox: "0 0 18 10", "aria-hidden": "true" },
        s("line", { x1: 0, x2: 18, y1: 5, y2: 5, stroke: one.colour, "stroke-width": 3, "stroke-dasharray": one.dash })),
      foreign(one.label))));
    const focused = place.contains(document.activeElement);
    place.replaceChildren(...(title ? [h("p", { class: "soft" }, title)] : []), h("div", { class: "chart" }, svg), legend, readout);
    if (focused) svg.focus();
  };

  const axes = {
    position: { name: "steps of each replica", text: (v) => scaled(v, "") },
    entry: { name: "entries", text: (v) => scaled(v, "") },
    tokens: { name: "tokens of all replicas", text: (v) => scaled(v, "") },
    time: { name: "time since the run began", text: duration },
    bytes: { name: "bytes sent by all replicas", text: bytes },
  };

  // ---- tables

  // columns: [[title, of(row), isNumber]]
  // The words of the numbers and tables: shown over a title, and as a list at the page's end.
  const meanings = {
    "–": "Not known yet: no replica has reported the value so far. It may also not apply.",
    "loss": "The mean over the replicas that an entry counts, of the loss of their own training steps. At the top: of the newest entry.",
    "validation loss": "The loss of the shared model on data that is held back. One replica measures it.",
    "an entry takes": "The mean time between two of the newest entries.",
    "left": "The time until the run's end, at the pace of the newest entries.",
    "tokens": "Tokens in the training steps of all replicas that an entry has counted.",
    "bytes sent": "Bytes of the contributions of all replicas, and of the combined updates, in the entries so far.",
    "time in training": "The share of a replica's time that it trained. It is the mean over replicas that have finished the run.",
    "step": "Training steps of this replica alone. In the log: the position of the run in steps.",
    "sent": "Bytes that this replica alone has sent in exchanges.",
    "received": "Bytes that this replica alone has received in exchanges.",
    "entry": "One exchange: a numbered object of the log that names the contributions it combines, or why there are none.",
    "commit": "An entry that moves the shared model.",
    "abort": "An entry that moves nothing, because too few contributions came.",
    "generation": "The number of a replica's process: 0 at first, one more after each restart.",
    "deadline": "The time after which an entry does not wait for this replica. It follows from the replica's own speed.",
    "missing or rejected": "Entries of those shown that do not count this replica's contribution.",
    "steps stale": "Steps that the replica trained between a contribution and the entry that counts it.",
    "norm": "Length of the newest contribution: how far the replica's training moved the model.",
    "cosine": "Direction of the newest contribution: 1 is that of the combined update, 0 is across it, −1 against it.",
    "writes": "Requests that a provider bills as writes: to store an object, or to list a folder.",
    "reads": "Requests that a provider bills as reads: to read an object.",
    "a request": "The time of a request of a few bytes.",
    "committer": "The replica that wrote the entry.",
    "result": "The first digits of the model's digest after the entry. Equal digests are equal models, to the bit.",
  };
  const heading = ([title, , kind]) =>
    h("th", { scope: "col", class: kind === "n" ? "n" : null, title: meanings[title] || null }, title);
  const glossary = () => h("details", {}, h("summary", {}, "What the words mean"),
    h("dl", {}, Object.entries(meanings).flatMap(([word, text]) => [h("dt", {}, word), h("dd", {}, text)])));
  const table = (caption, columns, rows) =>
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      h("table", {},
        h("caption", { class: "soft", hidden: true }, caption),
        h("thead", {}, h("tr", {}, columns.map(heading))),
        h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, of, kind]) => h("td", { class: kind }, of(row))))))));
  const stateOf = (state) => h("span", { class: `state ${/^[a-z ]+$/.test(state) ? state.replace(" ", "-") : ""}` }, state);
  const tiles = (pairs) => h("dl", { class: "tiles" }, pairs.map(([name, value, small]) =>
    h("div", {}, h("dt", { title: meanings[name.toLowerCase()] || null }, name), h("dd", {}, value, small ? h("small", {}, small) : null))));
  const saved = (run) =>
    run.bytes > 0 && run.data_parallel_bytes > 0 && run.n_replicas > 1
      ? `${number(run.data_parallel_bytes / run.bytes, 3)} times less than data-parallel` : "";
  const linkTo = (name, text) => h("a", { href: `#/run/${encodeURIComponent(name)}` }, foreign(text));

  // ---- the list of runs

  const listPage = async (page) => {
    const body = h("div", {});
    page.replaceChildren(h("h1", {}, "Runs"), body);
    const chosen = new Set();
    const compare = h("button", { type: "button", onclick: () => {
      location.hash = `#/compare/${[...chosen].map(encodeURIComponent).join("/")}`;
    } }, "Compare the chosen runs");
    const refresh = async () => {
      const { runs } = await ask("/.page/runs");
      runs.sort((a, b) => (b.last || 0) - (a.last || 0) || (a.name < b.name ? -1 : 1));
      if (!runs.length) {
        body.replaceChildren(h("p", {}, "There is no run here yet. It appears with its first replica."));
        return;
      }
      const box = (run) => {
        const input = h("input", { type: "checkbox", "aria-label": `choose ${run.name}`, onchange: () => {
          input.checked ? chosen.add(run.name) : chosen.delete(run.name);
          compare.disabled = chosen.size < 2;
        } });
        input.checked = chosen.has(run.name);
        return input;
      };
      compare.disabled = chosen.size < 2;
      body.replaceChildren(table("Runs", [
        ["", box],
        ["run", (r) => linkTo(r.name, r.name)],
        ["state", (r) => stateOf(r.loading ? "loading" : r.state)],
        ["progress", (r) => (r.entries_total ? h("progress", { max: r.entries_total, value: r.entries, "aria-label": `${r.entries} of ${r.entries_total} entries` }) : "–")],
        ["entries", (r) => (known(r.entries) ? `${number(r.entries)} of ${number(r.entries_total)}` : "–"), "n"],
        ["loss", (r) => number(r.loss), "n"],
        ["validation", (r) => number(r.eval_loss), "n"],
        ["replicas alive", (r) => (known(r.alive) ? `${r.alive} of ${r.n_replicas}` : "–"), "n"],
        ["last entry", (r) => (r.last > 0 ? `${duration(r.now - r.last)} ago` : "–"), "n"],
        ["left", left, "n"],
        ["bytes sent", (r) => bytes(r.bytes), "n"],
        ["", (r) => h("span", { class: "soft" }, saved(r)), "wide"],
        ["what is wrong", (r) => (r.finding ? h("span", {}, foreign(r.finding)) : ""), "wide"],
      ], runs), h("p", { class: "row" }, compare));
    };
    return { title: "runs", refresh, every: 3000 };
  };

  // ---- one run

  const parts = [["train", "train"], ["encode", "encode"], ["put", "upload"], ["wait", "wait for others"], ["rest", "read and apply"]];
  const section = (title, ...children) => {
    const id = `s-${title.replace(/[^a-z]+/gi, "-").toLowerCase()}`;
    return h("section", { "aria-labelledby": id }, h("h2", { id }, title), children);
  };

  const headline = (run) => {
    if (run.loading) return `Reading the log: ${number(run.entries)} entries so far.`;
    if (run.state === "complete") return `The run is complete: ${number(run.entries)} entries.`;
    if (run.state === "empty") return "No replica has joined yet.";
    if (run.state === "stopped") return "No replica is alive.";
    const who = `${run.alive} of ${run.n_replicas} replicas alive`;
    const pace = known(run.round_s) ? `, an entry every ${duration(run.round_s)}` : "";
    const end = known(run.left_s) ? `, about ${duration(run.left_s)} left` : "";
    const missing = run.wait && run.wait.missing.length ? `; entry ${run.wait.entry} waits for ${run.wait.missing.join(", ")}` : "";
    return `${who}${pace}${end}${missing}.`;
  };

  const lossChart = (place, run, axis) => {
    const c = run.curves, a = axes[axis];
    const series = [
      { label: "mean loss of the replicas' steps", xs: c[axis], ys: c.loss, colour: colours[0],
        bandX: c[axis], low: c.per_point > 1 ? c.low : null, high: c.high },
      { label: "validation loss", xs: c[axis], ys: c.eval, colour: colours[1], dots: true },
      { label: "validation loss after the exchange", xs: c[axis], ys: c.eval_after, colour: colours[2], dash: "5 4" },
    ];
    if (axis === "position")
      series.unshift({ label: "loss of single steps", xs: run.inner.loss.map((_, i) => (i + 0.5) * run.inner.width),
        ys: run.inner.loss, colour: colours[7] });
    lineChart(place, { label: "Loss", series, xName: a.name, xText: a.text });
  };

  // A lane each: time to the right, what a replica did in each entry as colours.
  const laneChart = (place, run, state, redraw) => {
    const lanes = run.lanes, rows = lanes.rows;
    let canvas = place.querySelector("canvas"), readout = place.querySelector(".readout");
    if (!rows.some((r) => r.cells.some((cell) => cell[0] !== null))) {
      place.replaceChildren(h("p", { class: "soft" }, run.state === "complete" ? "The record of this run has no times."
        : "No replica's record of these entries has reached the store yet; a record arrives about every 30 seconds."));
      return;
    }
    if (!canvas) {
      canvas = h("canvas", { class: "lanes", tabindex: "0", role: "img" });
      readout = h("p", { class: "readout", "aria-live": "polite" });
      place.replaceChildren(h("ul", { class: "legend" }, [...parts, ["missing", "missing or rejected"]].map(([key, name]) =>
        h("li", {}, s("svg", { viewBox: "0 0 18 10", "aria-hidden": "true" }, s("rect", { width: 18, height: 10, fill: `var(--${key})` })), name))),
        canvas, readout);
      canvas.addEventListener("keydown", (event) => {
        const move = { ArrowLeft: "earlier", ArrowRight: "later", "+": "closer", "-": "wider", Home: "all" }[event.key];
        if (move) { event.preventDefault(); redraw(move); }
      });
    }
    canvas.setAttribute("aria-label", `Timeline of ${rows.length} replicas, entries ${lanes.from} to ${lanes.to}. ` +
      "Left and right arrow keys move, plus and minus zoom. The table below has the same as numbers.");
    // Times of cells: by the replicas' clocks where the record has them, else one after the other.
    const n = Math.max(...rows.map((r) => r.cells.length));
    let first = Infinity, last = -Infinity;
    const spans = rows.map((row) => row.cells.map((cell) => {
      const [end, train, encode, put, wait, rest] = cell;
      if (end === null) return null;
      const begin = end - train - encode - put - wait - rest;
      first = Math.min(first, begin); last = Math.max(last, end);
      return begin;
    }));
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(280, canvas.parentNode.clientWidth), laneH = rows.length > 64 ? 8 : rows.length > 24 ? 14 : 22;
    const labelW = rows.length > 64 ? 0 : 84, top = 4, bottom = 22;
    const height = top + bottom + rows.length * laneH;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const g = canvas.getContext("2d");
    const css = getComputedStyle(document.documentElement);
    const ink = Object.fromEntries(["text", "soft", "line", "missing", ...parts.map(([k]) => k)].map((k) => [k, css.getPropertyValue(`--${k}`).trim()]));
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    const X = (t) => labelW + (width - labelW - 4) * (t - first) / Math.max(last - first, 1);
    rows.forEach((row, r) => {
      const y = top + r * laneH, tall = laneH - (laneH > 10 ? 5 : 1);
      g.fillStyle = ink.text;
      if (labelW) g.fillText(row.replica.slice(0, 12), 0, y + tall / 2, labelW - 6);
      row.cells.forEach((cell, i) => {
        const begin = spans[r][i];
        if (begin === null) return;
        let t = begin;
        parts.forEach(([key], k) => {
          const ms = cell[1 + k];
          if (ms > 0) {
            g.fillStyle = ink[key];
            g.fillRect(X(t), y, Math.max(X(t + ms) - X(t), 0.4), tall);
          }
          t += ms;
        });
        if (cell[6] & 6) { g.fillStyle = ink.missing; g.fillRect(X(begin), y + tall - 3, Math.max(X(cell[0]) - X(begin), 1), 3); }
        g.fillStyle = ink.text; // where an entry ends
        g.fillRect(X(cell[0]) - 0.5, y, 1, tall);
        const before = i > 0 ? row.cells[i - 1][9] : cell[9];
        if (cell[9] > before && laneH > 10) g.fillText(`↻${cell[9]}`, X(begin) + 2, y + tall / 2);
      });
    });
    if (first < last) {
      g.fillStyle = ink.soft;
      g.textBaseline = "alphabetic";
      const step = niceStep((last - first) / 1000 / 6) * 1000;
      for (let t = Math.ceil(first / step) * step; t <= last; t += step) {
        g.fillRect(X(t), top, 0.5, height - bottom);
        g.fillText(duration(t / 1000), Math.min(X(t) + 2, width - 50), height - 8);
      }
    }
    canvas.onpointermove = (event) => {
      const box = canvas.getBoundingClientRect();
      const r = Math.floor((event.clientY - box.top - top) / laneH), row = rows[r];
      if (!row || first > last) return;
      const t = first + (event.clientX - box.left - labelW) / (width - labelW - 4) * (last - first);
      const i = row.cells.findIndex((cell, k) => spans[r][k] !== null && t <= cell[0] && t >= spans[r][k]);
      if (i < 0) { readout.textContent = row.replica; return; }
      const cell = row.cells[i], e = lanes.from + i * lanes.per_bin;
      readout.textContent = `${row.replica}, ${lanes.per_bin > 1 ? `entries ${e} to ${Math.min(e + lanes.per_bin, lanes.to) - 1}` : `entry ${e}`}: ` +
        parts.map(([, name], k) => `${name} ${duration(cell[1 + k] / 1000)}`).join(", ") +
        (cell[6] & 4 ? ", rejected" : cell[6] & 2 ? ", missing" : "") + (cell[8] ? `, ${cell[8]} steps stale` : "");
    };
    state.n = n;
  };

  const shares = (run) => run.lanes.rows.map((row) => {
    const sum = [0, 0, 0, 0, 0];
    let entries = 0, missing = 0, stale = 0, norm = null, cosine = null;
    for (const cell of row.cells) {
      for (let k = 0; k < 5; k++) sum[k] += (cell[1 + k] || 0) / 1000;
      if (cell[0] !== null) entries++;
      if (cell[6] & 6) missing++;
      stale = Math.max(stale, cell[8]);
      if (cell[7] > 0) norm = cell[7];
      if (cell[10]) cosine = cell[10];
    }
    return { replica: row.replica, sum, all: sum.reduce((a, b) => a + b, 0), entries: entries * run.lanes.per_bin, missing, stale, norm, cosine };
  });

  // One number of the cells of the first twelve replicas, a line each; 0 is not known.
  const memberChart = (place, run, at, label) => {
    const rows = run.lanes.rows.slice(0, 12);
    lineChart(place, { label, title: `${label}, in the entries of the timeline`, xName: "entries", xText: (v) => scaled(v, ""),
      series: rows.map((row, i) => ({ label: row.replica, colour: colours[i % 8], dash: i > 7 ? "4 3" : null,
        xs: row.cells.map((_, k) => run.lanes.from + k * run.lanes.per_bin),
        ys: row.cells.map((cell) => (cell[at] ? cell[at] : null)) })) });
  };

  const prices = () => {
    try { return JSON.parse(localStorage.getItem("prices")) || { gb: 0, k: 0 }; } catch { return { gb: 0, k: 0 }; }
  };

  const runPage = async (page, name) => {
    const at = { axis: "position", from: null, to: null };
    const el = { head: h("div", {}), findings: h("div", { "aria-live": "polite" }), tiles: h("div", {}), loss: h("div", {}),
      range: h("p", { class: "soft" }), lanes: h("div", {}),
      shares: h("div", {}), replicas: h("div", {}), agree: h("div", {}), norm: h("div", {}), norms: h("div", {}), cosines: h("div", {}),
      traffic: h("div", {}), total: h("span", {}), happenings: h("div", {}), log: h("div", {}), verify: h("div", {}), settings: h("div", {}) };
    let run = null;
    const chooseAxis = h("select", { id: "axis", onchange: () => { at.axis = chooseAxis.value; if (run) lossChart(el.loss, run, at.axis); } },
      Object.entries(axes).map(([key, a]) => h("option", { value: key }, a.name)));
    const zoom = (move) => {
      if (!run) return;
      const all = run.entries, L = run.lanes;
      let from = L.from, to = L.to, n = Math.max(to - from, 4);
      if (move === "earlier") { from -= n / 2; to -= n / 2; }
      if (move === "later") { from += n / 2; to += n / 2; }
      if (move === "closer") { from += n / 4; to -= n / 4; }
      if (move === "wider") { from -= n / 2; to += n / 2; }
      n = to - from;
      if (move === "all") { at.from = 0; at.to = null; at.all = true; }
      else if (move === "newest") { at.from = at.to = null; at.all = false; }
      else {
        at.all = false;
        to = Math.min(all, Math.max(4, Math.ceil(to)));
        from = Math.max(0, Math.floor(Math.min(from, to - 4)));
        at.from = from; at.to = to;
        if (to === all && move === "later") { at.from = at.to = null; }
      }
      refresh();
    };
    const zoomButton = (move, text) => h("button", { type: "button", onclick: () => zoom(move) }, text);
    // The fields are made once: a redrawn one would lose what is being typed.
    const priceField = (key, label) => {
      const id = `price-${key}`;
      const input = h("input", { id, type: "number", min: 0, step: "any", onchange: () => {
        const now = { ...prices(), [key]: Math.max(0, +input.value || 0) };
        try { localStorage.setItem("prices", JSON.stringify(now)); } catch { /* it is used once */ }
        if (run) drawTraffic();
      } });
      input.value = prices()[key];
      return [h("label", { for: id }, label), input];
    };
    page.replaceChildren(h("h1", {}, foreign(name)), el.head, el.findings, el.tiles,
      section("Loss", h("p", { class: "row" }, h("label", { for: "axis" }, "against"), chooseAxis), el.loss),
      section("What each replica did", report ? null : h("p", { class: "row" }, zoomButton("newest", "Newest"), zoomButton("all", "All"), zoomButton("earlier", "← Earlier"),
        zoomButton("later", "Later →"), zoomButton("closer", "+ Closer"), zoomButton("wider", "− Wider")), el.range, el.lanes, el.shares),
      section("Replicas", el.replicas),
      section("Agreement", h("div", { class: "grid2" }, el.agree, el.norm, el.cosines, el.norms)),
      section("Traffic", el.traffic, h("p", { class: "row" }, priceField("gb", "Price of a GB that is read"), priceField("k", "Price of 1,000 requests"), el.total)),
      section("What happened", el.happenings),
      section("Log", el.log),
      section("Verification", el.verify),
      section("Settings", el.settings), glossary());

    const drawTraffic = () => {
      const p = prices();
      const cost = (r) => r.received / 1e9 * p.gb + (r.writes + r.reads) / 1000 * p.k;
      const priced = p.gb > 0 || p.k > 0;
      const sum = run.replicas.reduce((a, r) => a + cost(r), 0);
      el.traffic.replaceChildren(table("Traffic of each replica", [
        ["replica", (r) => foreign(r.replica)],
        ["sent", (r) => bytes(r.sent), "n"], ["received", (r) => bytes(r.received), "n"],
        ["writes", (r) => number(r.writes), "n"], ["reads", (r) => number(r.reads), "n"],
        ["upload", (r) => (r.up_bps > 0 ? scaled(r.up_bps, "bit/s") : "–"), "n"],
        ["download", (r) => (r.down_bps > 0 ? scaled(r.down_bps, "bit/s") : "–"), "n"],
        ["a request", (r) => (r.request_s > 0 ? duration(r.request_s) : "–"), "n"],
        ...(priced ? [["cost", (r) => number(cost(r), 3), "n"]] : []),
      ], run.replicas));
      el.total.replaceChildren(priced ? h("strong", {}, `all replicas so far: ${number(sum, 3)}`) : h("span", { class: "soft" }, "With prices there is a column of costs."));
    };

    // The names of a large entry would fill the page: the first sixteen are shown, and the number of the rest.
    const membersOf = (e) => {
      const names = e.members.slice(0, 16).map((m, i) => (e.weights[i] !== undefined ? `${m} (${percent(e.weights[i])})` : m));
      return names.join(", ") + (e.members.length > 16 ? `, and ${e.members.length - 16} more` : "");
    };
    const logPage = { from: null };
    const drawLog = async () => {
      const n = 50, newest = Math.max(0, run.entries - n), from = logPage.from === null ? newest : logPage.from;
      const { entries } = await ask("/.page/entries", { run: name, from, n });
      entries.reverse();
      const go = (to) => () => { logPage.from = to >= newest ? null : Math.max(0, to); drawLog(); };
      el.log.replaceChildren(report ? "" : h("p", { class: "row" },
        h("button", { type: "button", onclick: go(from + n), disabled: from >= newest }, "← Newer"),
        h("button", { type: "button", onclick: go(from - n), disabled: from === 0 }, "Older →")),
      table("Entries of the log", [
        ["entry", (e) => number(e.entry), "n"],
        ["kind", (e) => (e.commit ? "commit" : h("span", { class: "state stopped" }, "abort"))],
        ["step", (e) => number(e.position), "n"],
        ["loss", (e) => number(e.loss), "n"],
        ["bytes", (e) => bytes(e.bytes), "n"],
        ["members", (e) => foreign(membersOf(e)), "wide"],
        ["rejected, or the reason of an abort", (e) => foreign(e.commit ? e.rejected.map((r, i) => `${r}: ${e.rejected_for[i]}`).join(", ") : e.reason), "wide"],
        ["committer", (e) => foreign(e.committer)],
        ["result", (e) => h("code", {}, (e.result || "").slice(0, 16))],
      ], entries));
    };
    let loadedSettings = false;
    const drawSettings = async () => {
      loadedSettings = true;
      const { settings } = await ask("/.page/settings", { run: name });
      const only = h("input", { id: "only", type: "search", oninput: () => draw() });
      const place = h("div", {});
      const draw = () => {
        const text = only.value.toLowerCase();
        place.replaceChildren(table("Settings of the run", [
          ["setting", (o) => h("code", {}, o.name)],
          ["value", (o) => foreign(o.value === "" ? '""' : o.value), "wide"],
          ["unit", (o) => o.unit],
          ["from", (o) => (o.origin === "default" ? h("span", { class: "soft" }, "default") : `run.json (default ${o.default === "" ? '""' : o.default})`), "wide"],
          ["meaning", (o) => h("span", { class: "soft" }, o.help), "wide"],
        ], settings.filter((o) => (text ? (o.name + o.help).toLowerCase().includes(text) : o.origin !== "default"))));
      };
      const quoted = (o) => (/^(true|false|[-+0-9.e]+)$/.test(o.value) ? o.value : JSON.stringify(o.value));
      const file = h("details", {}, h("summary", {}, "How to repeat it: these settings as a configuration file"),
        h("pre", {}, settings.filter((o) => o.origin !== "default").map((o) => `${o.name} = ${quoted(o)}\n`).join("")));
      el.settings.replaceChildren(h("p", { class: "row" }, h("label", { for: "only" }, "Find (without a word: what differs from the defaults)"), only), place, file);
      draw();
    };

    const draw = () => {
      const r = run;
      el.head.replaceChildren(h("p", {}, stateOf(r.loading ? "loading" : r.state), " ", h("span", { id: "headline" }, headline(r)),
        !r.loading && r.reading ? h("span", { class: "soft" }, " Reading what the replicas recorded …") : null),
        h("progress", { max: r.entries_total || 1, value: r.entries, "aria-label": `${r.entries} of ${r.entries_total} entries` }));
      const shown = r.findings.length ? r.findings.map((f) => h("li", { class: f.level }, h("b", {}, { bad: "Wrong: ", warn: "Attention: ", info: "" }[f.level]), foreign(f.text)))
        : r.loading ? [] : [h("li", { class: "good" }, h("b", {}, "Well: "), r.state === "complete" ? "nothing to report." : "no replica is lost, slow or rejected.")];
      const text = shown.map((one) => one.textContent).join("\n");
      if (el.findings.dataset.text !== text) {
        el.findings.dataset.text = text;
        el.findings.replaceChildren(h("ul", { class: "findings" }, shown));
      }
      el.tiles.replaceChildren(tiles([
        ["Loss", number(r.loss)],
        ["Validation loss", number(r.eval_loss)],
        ["Entries", `${number(r.entries)} of ${number(r.entries_total)}`, r.aborts ? `${number(r.aborts)} aborted` : ""],
        ["Replicas alive", `${r.alive} of ${r.n_replicas}`, r.expected > r.n_replicas ? `${r.expected} expected` : ""],
        ["An entry takes", duration(r.round_s), r.last > 0 && r.state !== "complete" ? `last ${duration(Math.max(0, r.now - r.last))} ago` : ""],
        [r.state === "complete" ? "Began" : "Left", r.state === "complete" ? clock(r.began) : left(r)],
        ["Tokens", scaled(r.tokens, ""), `${scaled(r.steps, "")} steps`],
        ["Bytes sent", bytes(r.bytes), saved(r)],
        ["Time in training", percent(r.utilization)],
        ["Model", foreign(r.model), `${scaled(r.parameters, "")} parameters, ${r.preset || "no preset"}`],
      ]), h("p", { class: "soft" }, "These numbers are of all replicas together; the tables below have those of each. – means: not known yet."));
      lossChart(el.loss, r, at.axis);
      const L = r.lanes;
      el.range.textContent = L.to > L.from ? `Entries ${number(L.from)} to ${number(L.to - 1)}; the newest is ${number(r.entries - 1)}.` : "";
      laneChart(el.lanes, r, at, zoom);
      // Rows that are not looked at are not made: with 256 replicas they would cost more than all the rest.
      const sharesTable = () => table("What each replica did in these entries", [
        ["replica", (x) => foreign(x.replica)],
        ...parts.map(([, title], k) => [title, (x) => `${duration(x.sum[k])} (${percent(x.all ? x.sum[k] / x.all : NaN)})`, "n"]),
        ["missing or rejected", (x) => number(x.missing), "n"], ["steps stale", (x) => number(x.stale), "n"], ["norm", (x) => number(x.norm), "n"],
        ["cosine", (x) => number(x.cosine, 2), "n"],
      ], shares(r));
      if (!el.shares.firstChild) {
        const place = h("div", {});
        el.shares.append(h("details", { ontoggle: (event) => { at.open = event.target.open; place.replaceChildren(...(at.open ? [at.table()] : [])); } },
          h("summary", {}, "The same as a table"), place));
      }
      at.table = sharesTable;
      if (at.open) el.shares.firstChild.lastChild.replaceChildren(sharesTable());
      el.replicas.replaceChildren(table("Replicas", [
        ["replica", (x) => foreign(x.replica)], ["state", (x) => stateOf(x.state)], ["generation", (x) => number(x.generation), "n"],
        ["host", (x) => foreign(x.host)], ["step", (x) => number(x.step), "n"], ["entry", (x) => number(x.entry), "n"],
        ["steps/s", (x) => number(x.steps_per_s, 3), "n"], ["tokens/s", (x) => scaled(x.tokens_per_s, ""), "n"],
        ["deadline", (x) => (x.deadline_s > 0 ? duration(x.deadline_s) : "–"), "n"],
        ["rejected", (x) => (x.rejected ? `${x.rejected}${x.banned_until ? `, banned until ${x.banned_until}` : ""}` : "–"), "n"],
      ], r.replicas));
      const c = r.curves;
      lineChart(el.agree, { label: "Cosine similarity of the contributions", xName: "entries", xText: (v) => scaled(v, ""),
        series: [{ label: "mean cosine similarity", xs: c.entry, ys: c.similarity, colour: colours[2] }] });
      lineChart(el.norm, { label: "Norm of the combined update", xName: "entries", xText: (v) => scaled(v, ""),
        series: [{ label: "norm of the combined update", xs: c.entry, ys: c.norm, colour: colours[3] }] });
      memberChart(el.cosines, r, 10, "Cosine of each replica's contribution with the combined update");
      memberChart(el.norms, r, 7, "Norm of each replica's contribution");
      drawTraffic();
      const words = { join: "joined", end: "left", death: "died", abort: "entry aborted", reject: "contribution rejected", dispute: "disputes a result", warn: "warning", peer: "not reached by a peer" };
      el.happenings.replaceChildren(r.happenings.length ? table("What happened, the newest first", [
        ["time", (x) => clock(x.time)], ["entry", (x) => (known(x.entry) ? number(x.entry) : "–"), "n"],
        ["replica", (x) => foreign(x.replica)], ["what", (x) => words[x.kind] || x.kind], ["", (x) => foreign(x.text), "wide"],
      ], r.happenings) : h("p", { class: "soft" }, "Nothing yet."));
      const v = r.verification;
      el.verify.replaceChildren(h("p", {}, v.unchained
        ? h("strong", { class: "error" }, `${number(v.unchained)} entries do not follow from the entry before them.`)
        : `The chain of ${number(v.chained)} entries is whole: each names the digest of the one before.`,
      ` ${v.disputes ? `${number(v.disputes)} results are disputed.` : "No replica disputes a result."}`),
      h("p", { class: "soft" }, "To compute every result again: ", h("code", {}, "diloco verify "), h("code", {}, foreign(r.name))));
    };
    let busy = false, again = false;
    const refresh = async () => {
      if (busy) { again = true; return; }
      busy = true;
      try {
        do {
          again = false;
          const window_ = at.all ? { from: 0, to: run ? Math.max(run.entries, 1) : 1 } : at.to ? { from: at.from, to: at.to } : {};
          const before = run ? run.entries : -1;
          run = await ask("/.page/run", { run: name, points: 400, ...window_ });
          draw();
          if (!run.loading && run.entries !== before && logPage.from === null) await drawLog();
          if (!run.loading && !loadedSettings) await drawSettings();
          if (run.reading) again = true;
        } while (again);
      } finally { busy = false; }
    };
    const redraw = () => { if (run) draw(); };
    return { title: name, refresh, every: 5000, follows: name, redraw };
  };

  // ---- several runs over one axis

  const comparePage = async (page, names) => {
    const chart = h("div", {}), valid = h("div", {}), sums = h("div", {});
    let runs = [];
    const axis = h("select", { id: "axis", onchange: () => draw() }, Object.entries(axes).map(([key, a]) => h("option", { value: key }, a.name)));
    page.replaceChildren(h("h1", {}, "Compare"), h("p", { class: "row" }, h("label", { for: "axis" }, "against"), axis),
      section("Validation loss", valid), section("Mean loss of the replicas' steps", chart), section("In numbers", sums));
    const draw = () => {
      const a = axes[axis.value];
      const of = (key) => runs.map((run, i) => ({ label: run.name, xs: run.curves[axis.value], ys: run.curves[key], colour: colours[i % 8], dots: key === "eval" }));
      lineChart(valid, { label: "Validation loss", series: of("eval"), xName: a.name, xText: a.text });
      lineChart(chart, { label: "Loss", series: of("loss"), xName: a.name, xText: a.text });
      const rows = [
        ["state", (r) => stateOf(r.state)], ["entries", (r) => number(r.entries)], ["replicas", (r) => number(r.n_replicas)],
        ["model", (r) => foreign(r.model)], ["preset", (r) => foreign(r.preset)], ["loss", (r) => number(r.loss)], ["validation loss", (r) => number(r.eval_loss)],
        ["steps", (r) => scaled(r.steps, "")], ["tokens", (r) => scaled(r.tokens, "")], ["bytes sent", (r) => bytes(r.bytes)],
        ["against data-parallel", (r) => saved(r) || "–"], ["an entry takes", (r) => duration(r.round_s)], ["time in training", (r) => percent(r.utilization)],
      ];
      sums.replaceChildren(table("The runs in numbers", [["", ([title]) => title], ...runs.map((run) => [foreign(run.name), ([, of_]) => of_(run), "n"])], rows));
    };
    const refresh = async () => {
      do { runs = await Promise.all(names.map((run) => ask("/.page/run", { run, points: 400, bins: 1 }))); draw(); } while (runs.some((run) => run.reading));
    };
    return { title: `compare ${names.join(", ")}`, refresh, every: 5000 };
  };

  // ---- where we are

  const fail = (page, error) => {
    if (error instanceof Refused && error.status === 401) return askForToken(page, token !== null);
    const text = error instanceof Refused ? error.message : "The server does not answer.";
    const place = page.querySelector("#failed") || h("p", { id: "failed", class: "error", role: "alert" });
    place.textContent = text.trim();
    if (!place.parentNode) page.prepend(place);
    return undefined;
  };
  const askForToken = (page, wrong) => {
    const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
    if (wrong) keep(null);
    live.textContent = "";
    page.replaceChildren(h("form", { class: "token", onsubmit: (event) => { event.preventDefault(); keep(input.value.trim()); open(); } },
      h("h1", {}, "A token, please"), wrong ? h("p", { class: "error", role: "alert" }, "The hub does not know this token.") : null,
      h("p", {}, "This hub shows its runs to those who have one of its tokens: a line of the file that ", h("code", {}, "diloco serve --token-file"), " names."),
      h("label", { for: "token" }, "Token"), input, h("button", { type: "submit" }, "Show the runs")));
    input.focus();
  };

  let leaving = null, redraw = () => {};
  const open = async () => {
    const hash = location.hash;
    if (hash.startsWith("#token=")) {
      keep(decodeURIComponent(hash.slice(7)));
      history.replaceState(null, "", "#/");
    }
    if (hash === "#main") return;
    if (leaving) leaving.abort();
    leaving = new AbortController();
    const { signal } = leaving;
    const page = h("div", {});
    main.replaceChildren(page);
    live.textContent = "";
    try {
      let where = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
      if (!where[0] && !signal.aborted) {
        const { runs, hub } = await ask("/.page/runs");
        if (!hub && runs.length === 1) where = ["run", runs[0].name];
        else if (report && !hash) where = ["compare", ...runs.map((run) => run.name)];
      }
      const shown = where[0] === "run" && where[1] ? await runPage(page, where[1])
        : where[0] === "compare" && where.length > 2 ? await comparePage(page, where.slice(1).filter(Boolean).slice(0, 8))
          : await listPage(page);
      redraw = shown.redraw || (() => {});
      document.title = `${shown.title} – diloco`;
      document.getElementById("where").replaceChildren("› ", foreign(shown.title));
      const refresh = async () => {
        if (signal.aborted) return;
        try {
          await shown.refresh();
          const failed = page.querySelector("#failed");
          if (failed) failed.remove();
        } catch (error) {
          if (!signal.aborted) fail(page, error);
        }
      };
      await refresh();
      document.documentElement.dataset.ready = "yes"; // for tests: the first drawing is complete
      if (report) return;
      let soon = null;
      const changed = () => { if (!soon) soon = setTimeout(() => { soon = null; refresh(); }, 1000); };
      if (shown.follows) follow(shown.follows, changed, signal);
      const timer = setInterval(() => { if (!document.hidden) refresh(); }, shown.every);
      signal.addEventListener("abort", () => clearInterval(timer));
    } catch (error) {
      if (!signal.aborted) fail(page, error);
    }
  };

  const wanted = () => {
    let theme = null;
    try { theme = localStorage.getItem("theme"); } catch { /* the system's */ }
    return theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  };
  const show = (theme) => { document.documentElement.dataset.theme = theme; };
  show(wanted());
  document.getElementById("theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", theme); } catch { /* until the page is left */ }
    show(theme);
    redraw();
  });
  addEventListener("resize", () => redraw());
  addEventListener("hashchange", open);
  open();
})();
