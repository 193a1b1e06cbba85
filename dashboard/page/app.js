// The page: it is sent the state of the computer every second, and asks for views when they are
// on the screen. Numbers and pictures come from the server; here they are only put in place.

import {Gantt} from "./gantt.js";

const main = document.getElementById("main"), chooser = document.getElementById("run"), live = document.getElementById("live");
let state = {runs: [], gpus: [], host: {}, notes: []};
let view = "now", run = "", sort = {key: "changed", up: false}, filter = "", compared = new Set(), shown = "";

/** What may be wider than the window: it can be scrolled with the keyboard. */
const wide = {class: "scroll", tabindex: "0", role: "group", "aria-label": "a table that scrolls"};

/** Makes an element; text is only ever text. */
function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value); else if (value !== undefined && value !== false) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

export function bytes(n) {
  if (!n) return "0 B";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (n >= 100 || i === 0 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)) + " " + units[i];
}

export function seconds(s) {
  if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  if (s >= 120) return `${Math.floor(s / 60)} min ${Math.floor(s) % 60} s`;
  if (s >= 1) return s.toPrecision(3) + " s";
  return s > 0 ? (s * 1e3).toPrecision(3) + " ms" : "";
}

const percent = (share) => share ? (100 * share).toFixed(0) + "%" : "";
const number = (n) => n === undefined || n === null ? "" : Number(n.toPrecision(5)).toLocaleString("en");

async function ask(address) {
  const answer = await fetch(address);
  if (!answer.ok) {
    const text = await answer.text();
    let message = text;
    try { message = JSON.parse(text).error; } catch { /* it is plain */ }
    throw new Error(message);
  }
  return answer;
}

/** A picture of the server with its numbers behind it, and ways to take it along. */
function figure(address, title) {
  const picture = make("div"), table = make("div", wide);
  const details = make("details", {}, make("summary", {}, `numbers of ${title}`), table);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    const lines = (await (await ask(address("csv"))).text()).trim().split("\n").map((l) => l.split(","));
    const every = Math.max(Math.floor(lines.length / 200), 1);
    table.replaceChildren(rows(title, lines[0], lines.slice(1).filter((_, i) => i % every === 0)));
  });
  const links = ["svg", "csv", "json"].flatMap((form) => [make("a", {href: address(form), download: `${title}.${form}`.replaceAll(" ", "-")}, form), " "]);
  const f = make("figure", {}, picture, make("figcaption", {}, ...links), details);
  f.refresh = async () => {
    try {
      const text = await (await ask(address("svg"))).text();
      picture.innerHTML = text; // drawn by this server, which escapes all texts in it
    } catch (error) {
      picture.replaceChildren(make("p", {class: "bad"}, `${title}: ${error.message}`));
    }
  };
  f.refresh();
  return f;
}

/** A table of texts. */
function rows(caption, head, lines) {
  return make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...head.map((h) => make("th", {scope: "col"}, h)))),
    make("tbody", {}, ...lines.map((line) => make("tr", {}, ...line.map((cell) => make("td", {class: String(cell).length > 40 ? "text" : ""}, cell))))));
}

function tile(name, value, small) {
  return make("div", {class: "tile"}, make("dt", {}, name), make("dd", {}, value || "–", small ? make("small", {}, small) : null));
}

function bar(share) {
  const inner = make("div");
  inner.style.width = Math.min(100 * share, 100).toFixed(1) + "%";
  return make("div", {class: "bar", "aria-hidden": "true"}, inner);
}

// Now

let figures = [];
async function showNow() {
  if (!run) { showNothing(); return; }
  const tiles = make("div"), plots = make("div", {class: "plots"}), rest = make("div", {class: "plots"}), id = run;
  figures = ["loss", "seconds", "tokens_per_second", "eval_loss"].map((m) => figure((form) => `api/run/${id}/metric/${m}.${form}`, m.replaceAll("_", " ")));
  plots.append(...figures);
  main.replaceChildren(tiles, make("h2", {}, "curves"), plots, rest);
  main.update = async () => {
    const now = await (await ask(`api/run/${id}/now`)).json();
    if (run !== id || view !== "now") return;
    tiles.replaceChildren(...nowTiles(now));
    rest.replaceChildren(...nowRest(now));
  };
  await main.update();
}

function nowTiles(now) {
  const it = now.last || {}, ratio = it.forecast_seconds ? it.seconds_per_step / it.forecast_seconds : 0;
  const parts = [];
  if (now.damaged) parts.push(make("p", {class: "bad"}, now.damaged));
  parts.push(make("h2", {}, `${now.name}: ${now.state}`));
  if (now.end && now.end.error) parts.push(make("p", {class: "bad"}, now.end.error));
  parts.push(make("dl", {class: "tiles"},
    tile("step", `${number(it.step)}${it.max_steps ? " of " + number(it.max_steps) : ""}`, now.checkpoint ? `saved at step ${now.checkpoint.step}` : "no checkpoint yet"),
    tile("loss", number(it.loss), it.best_eval ? `best eval loss ${number(it.best_eval)}` : ""),
    tile("tokens/s", number(Math.round(it.tokens_per_second || 0)), `${seconds(it.seconds_per_step || 0)} per step`),
    tile("share of roofline", percent(it.share_of_roofline), it.bound ? `limited by ${it.bound}` : ""),
    tile("measured / forecast", ratio ? ratio.toFixed(2) : "", it.forecast_seconds ? `forecast ${seconds(it.forecast_seconds)}` : ""),
    tile("time left", seconds(it.eta_s || 0), it.lr ? `learning rate ${it.lr.toPrecision(3)}` : "")));
  return parts;
}

function nowRest(now) {
  const parts = [];
  parts.push(make("section", wide, make("h2", {}, "memory"), make("table", {}, make("caption", {}, now.strategy ? `${now.strategy}: ${now.reason}` : ""),
    make("thead", {}, make("tr", {}, ...["tier", "reserved by the plan", "measured", "limit", "share of the limit"].map((h) => make("th", {scope: "col"}, h)))),
    make("tbody", {}, ...now.tiers.map((t) => make("tr", {}, make("td", {}, t.name), make("td", {}, bytes(t.reserved_bytes)), make("td", {}, t.measured_bytes ? bytes(t.measured_bytes) : ""),
      make("td", {}, t.budget_bytes ? bytes(t.budget_bytes) : ""), make("td", {}, t.budget_bytes ? bar(t.reserved_bytes / t.budget_bytes) : "")))))));
  if (now.alerts.length) {
    parts.push(make("section", {}, make("h2", {}, "alerts"), make("ul", {}, ...now.alerts.map((a) => make("li", {class: a.level === "serious" ? "bad" : ""}, `step ${a.step}: ${a.text}`)))));
  }
  parts.push(make("section", {}, make("h2", {}, "this computer"), computer()));
  return parts;
}

function computer() {
  const h = state.host, lines = [["host " + (h.name || ""), `${percent(h.busy) || "0%"} of ${h.cores} cores`, `${bytes(h.total_bytes - h.available_bytes)} of ${bytes(h.total_bytes)}`, "", ""]];
  for (const g of state.gpus) {
    lines.push([`GPU ${g.index} ${g.name || ""}`, g.busy_percent >= 0 ? g.busy_percent + "%" : "", g.memory_bytes > 0 ? `${bytes(g.memory_used_bytes)} of ${bytes(g.memory_bytes)}` : "",
      g.link_in_rate >= 0 ? (g.link_in_rate / 1e9).toFixed(1) + " GB/s" : "", g.link_out_rate >= 0 ? (g.link_out_rate / 1e9).toFixed(1) + " GB/s" : ""]);
  }
  return make("div", wide, rows((state.notes || []).join("; "), ["device", "busy", "memory", "link in", "link out"], lines));
}

function showNothing() {
  main.replaceChildren(make("p", {}, "There is no run yet. A run appears here when spillway train has taken its first step."), make("h2", {}, "this computer"), computer());
}

// Runs

const columns = [
  ["name", "run", (r) => r.name], ["state", "state", (r) => r.state], ["model", "model", (r) => (r.start && r.start.model) || ""], ["step", "step", (r) => r.last && r.last.step, number],
  ["loss", "loss", (r) => r.last && r.last.loss, number], ["eval", "best eval loss", (r) => (r.last && r.last.best_eval) || undefined, number], ["speed", "tokens/s", (r) => r.last && r.last.tokens_per_second, (v) => v === undefined ? "" : number(Math.round(v))],
  ["roofline", "roofline", (r) => r.last && r.last.share_of_roofline, percent], ["memory", "device memory", (r) => r.last && r.last.measured_bytes, (v) => v ? bytes(v) : ""],
  ["changed", "last written", (r) => r.changed, (v) => v ? v.slice(0, 19).replace("T", " ") : ""],
];

function showRuns() {
  const body = make("tbody"), overlay = make("div", {class: "plots"}), tables = make("div");
  const search = make("input", {type: "search", "aria-label": "only runs whose name has", placeholder: "only runs whose name has", value: filter, oninput: () => { filter = search.value; fill(); }});
  const header = make("tr", {}, make("th", {scope: "col"}, "compare"), ...columns.map(([key, title]) => make("th", {scope: "col", "data-key": key},
    make("button", {onclick: () => { sort = {key, up: sort.key === key ? !sort.up : key === "name"}; fill(); }}, title))));
  const fill = () => {
    const [, , value] = columns.find(([key]) => key === sort.key);
    const order = (a, b) => (a === undefined || a === null ? 1 : b === undefined || b === null ? -1 : a < b ? -1 : a > b ? 1 : 0);
    const list = state.runs.filter((r) => r.name.includes(filter)).sort((a, b) => (sort.up ? 1 : -1) * order(value(a), value(b)));
    for (const th of header.querySelectorAll("th[data-key]")) {
      if (th.dataset.key === sort.key) th.setAttribute("aria-sort", sort.up ? "ascending" : "descending"); else th.removeAttribute("aria-sort");
    }
    body.replaceChildren(...list.slice(0, 1000).map((r) => make("tr", {}, make("td", {}, make("input", {type: "checkbox", "aria-label": `compare ${r.name}`, ...(compared.has(r.id) ? {checked: ""} : {}),
      onchange: (e) => { if (e.target.checked) compared.add(r.id); else compared.delete(r.id); draw(); }})),
      ...columns.map(([key, , of, text]) => make("td", {class: key === "name" ? "text" : ""}, key === "name" ? make("a", {class: "out", href: `#now/${r.id}`}, r.name) : r.error && key === "state" ? make("span", {class: "bad", title: r.error}, "unreadable") : text ? text(of(r)) : of(r) || "")))));
  };
  const draw = async () => {
    if (compared.size === 0) { overlay.replaceChildren(); tables.replaceChildren(make("p", {class: "faint"}, "Mark runs to lay their curves over each other and to see what differs.")); return; }
    const query = [...compared].map((id) => `run=${id}`).join("&");
    overlay.replaceChildren(...["loss", "eval_loss", "tokens_per_second", "device_bytes"].map((m) => figure((form) => `api/compare/${m}.${form}?${query}`, m.replaceAll("_", " "))));
    try {
      const c = await (await ask(`api/compare/all.json?${query}`)).json();
      tables.replaceChildren(...[["figures", c.figures], ["settings that differ", c.settings], ["plans that differ", c.plans], ["machines that differ", c.machines]].filter(([, list]) => list.length)
        .map(([title, list]) => make("div", wide, rows(title, ["what", ...c.runs], list.map((row) => [row.name, ...row.values])))));
    } catch (error) { tables.replaceChildren(make("p", {class: "bad"}, error.message)); }
  };
  main.replaceChildren(make("div", {class: "controls"}, search), make("div", wide, make("table", {}, make("caption", {}, `${state.runs.length} runs`), make("thead", {}, header), body)), make("h2", {}, "side by side"), overlay, tables);
  main.update = null;
  main.listed = fill;
  fill();
  draw();
}

// Memory

function showMemory() {
  if (!run) { showNothing(); return; }
  const id = run;
  main.replaceChildren(make("p", {}, "What the plan stores in each tier, instruction by instruction, and below it who sits at which address. Nothing is sampled: this is what was reserved, to the byte."),
    figure((form) => `api/run/${id}/memory/plan.${form}`, "memory"));
  main.update = null;
}

// Iteration

async function showIteration() {
  if (!run) { showNothing(); return; }
  const id = run, says = make("p", {role: "status", id: "selected"}, "");
  const canvas = make("canvas", {tabindex: "0", role: "img", "aria-label": "timeline of one step; arrows pan, plus and minus zoom, n and p select instructions, Home shows all"});
  main.update = null;
  const timeline = await (await ask(`api/run/${id}/timeline/step.json`)).json();
  if (run !== id || view !== "iteration") return;
  if (!timeline.lanes.length) { main.replaceChildren(make("p", {}, "The event log of this run has no timeline yet: one is recorded at the third step.")); return; }
  const trace = make("button", {onclick: async () => {
    trace.disabled = true;
    const answer = await fetch(`api/run/${id}/trace`, {method: "POST"});
    says.textContent = answer.ok ? "The next step will be timed: it appears here when this view is opened again." : "This run cannot be asked.";
  }}, "time the next step");
  const legend = make("ul", {class: "legend"}, ...[["run", "run"], ["move", "move"], ["reduce", "reduce"], ["update", "update"], ["late", "over a tenth longer than forecast"]].map(([name, text]) => {
    const box = make("i", {"aria-hidden": "true"});
    box.style.background = `var(--c-${name})`;
    return make("li", {}, box, text);
  }));
  const measured = timeline.step ? `, measured ${seconds(timeline.measured_seconds)} at step ${timeline.step}` : ", not measured yet";
  const form = (ending) => make("a", {class: "out", href: `api/run/${id}/timeline/step.${ending}`, download: `step.${ending}`}, ending);
  main.replaceChildren(make("p", {}, `One step: forecast ${seconds(timeline.forecast_seconds)}${measured}. Drag to pan, turn the wheel to zoom, click an instruction.`),
    make("div", {class: "controls"}, trace, form("svg"), form("csv"), form("json")), legend, canvas, says,
    make("div", wide, rows("lanes", ["lane", "works, forecast", "works, measured", "moves"], timeline.lanes.map((l) => [`${l.device} ${l.queue}`, seconds(l.forecast_seconds), seconds(l.measured_seconds), bytes(l.bytes)]))));
  window.gantt = new Gantt(canvas, timeline, (text) => { says.textContent = text; });
}

// Map, forecast and other plans

function showMap() {
  if (!run) { showNothing(); return; }
  const id = run;
  main.replaceChildren(make("p", {}, "Where each parameter buffer is stored between steps, for each purpose, and which of them stream to the device."), figure((form) => `api/run/${id}/map/plan.${form}`, "map"));
  main.update = null;
}

async function showForecast() {
  if (!run) { showNothing(); return; }
  const id = run;
  main.update = null;
  const check = await (await ask(`api/run/${id}/forecast/step.json`)).json();
  if (run !== id || view !== "forecast") return;
  if (!check.points.length) { main.replaceChildren(make("p", {}, "No step of this run was timed yet: one is recorded at the third step.")); return; }
  main.replaceChildren(make("p", {}, `Each point is an instruction of step ${check.step}. Above the diagonal it took longer than forecast.`), figure((form) => `api/run/${id}/forecast/step.${form}`, "forecast"),
    make("div", wide, rows("those that took longest beyond their forecast", ["lane", "instruction", "forecast", "measured"], (check.worst || []).map((w) => [w.lane, `${w.verb} ${w.name}`, seconds(w.forecast_seconds), seconds(w.measured_seconds)]))));
}

async function showPlans() {
  if (!run) { showNothing(); return; }
  const id = run;
  main.update = null;
  const list = await (await ask(`api/run/${id}/plans`)).json();
  if (run !== id || view !== "plans") return;
  const time = (p) => p.step_seconds ? (p.lower_bound ? "at least " : "") + seconds(p.step_seconds) : "";
  main.replaceChildren(make("div", wide, rows("the plan of the run, and those that the planner did not choose", ["plan", "time per step", "device", "pinned", "host", "disk", "why"],
    list.map((p) => [p.strategy, time(p), ...["device", "pinned", "host", "disk"].map((t) => p.peak_bytes && p.peak_bytes[t] ? bytes(p.peak_bytes[t]) : ""), p.reason]))),
    make("p", {class: "faint"}, "spillway plan --max-memory SIZE asks the planner for another limit."));
}

// Everything

const shows = {now: showNow, runs: showRuns, memory: showMemory, iteration: showIteration, map: showMap, forecast: showForecast, plans: showPlans};

async function show() {
  const key = `${view}/${run}`;
  shown = key;
  main.listed = null;
  for (const a of document.querySelectorAll("nav a")) {
    a.setAttribute("href", `#${a.dataset.view}${run ? "/" + run : ""}`);
    if (a.dataset.view === view) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  }
  chooser.value = run;
  try { await shows[view](); } catch (error) { main.replaceChildren(make("p", {class: "bad"}, error.message)); }
  document.documentElement.dataset.ready = view;
}

function route() {
  const [name, id] = location.hash.slice(1).split("/");
  view = shows[name] ? name : "now";
  if (id) run = id;
  show();
}

let beats = 0;
async function receive(next) {
  const first = state.runs.length === 0, before = state.runs.map((r) => r.id).join();
  state = next;
  if (before !== state.runs.map((r) => r.id).join()) {
    chooser.replaceChildren(...state.runs.map((r) => make("option", {value: r.id}, r.name)));
    chooser.value = run;
  }
  if (!run && state.runs.length) { run = (state.runs.find((r) => r.state === "running") || state.runs[0]).id; if (first) { show(); return; } }
  const going = state.runs.filter((r) => r.state === "running").length;
  live.textContent = `${going} running`;
  if (main.listed && document.activeElement?.type !== "checkbox") main.listed();
  if (main.update && shown === `${view}/${run}`) {
    try { await main.update(); } catch { /* the next second tries again */ }
    const current = state.runs.find((r) => r.id === run);
    if (++beats % 3 === 0 && current && current.state === "running") for (const f of figures) f.refresh();
  }
}

chooser.addEventListener("change", () => { run = chooser.value; location.hash = `${view}/${run}`; });
window.addEventListener("hashchange", route);
try { await receive(await (await ask("api/state")).json()); } catch (error) { live.textContent = error.message; }
route();
const events = new EventSource("events");
events.onmessage = (message) => receive(JSON.parse(message.data));
events.onerror = () => { live.textContent = "no connection; trying again"; };
