// The page: it is sent what changes on the computer every second, and asks for views when they
// are on the screen. Numbers and pictures come from the server; here they are only put in place.

import {Gantt} from "./gantt.js";
import {MapView} from "./map.js";
import {ask, bytes, figure, make, number, numbers, percent, roofline, rows, seconds, takeAlong, tile, wide} from "./parts.js";

const main = document.getElementById("main"), chooser = document.getElementById("run"), live = document.getElementById("live");
let state = {runs: [], gpus: [], host: {}, notes: []};
let view = "now", run = "", sort = {key: "changed", up: false}, filter = "", compared = new Set(), shown = "";

/** The run that is shown, as the list has it. */
const current = () => state.runs.find((r) => r.id === run);

/** What a view shows where it cannot show anything. */
function showNothing(...why) {
  main.replaceChildren(...why.length ? why : [make("p", {}, "There is no run yet. A run appears here when spillway train or spillway generate has taken its first step.")], make("h2", {}, "this computer"), computer());
}

// Now

let figures = [];
async function showNow() {
  const id = run, tiles = make("div"), plots = make("div", {class: "plots"}), rest = make("div", {class: "plots"});
  const tell = make("p", {class: "bad", role: "alert"});
  let drawn = "";
  main.replaceChildren(tiles, plots, rest);
  main.update = async () => {
    let now;
    try { now = await (await ask(`api/run/${id}/now`)).json(); } catch (error) {
      tell.textContent = error.message;
      main.replaceChildren(make("h2", {}, current()?.name || "this run"), tell, make("p", {}, "Other runs are shown: choose one above, or look at the list of runs."), make("h2", {}, "this computer"), computer());
      drawn = "";
      return;
    }
    if (run !== id || view !== "now") return;
    if (!main.contains(tiles)) main.replaceChildren(tiles, plots, rest);
    tiles.replaceChildren(...nowTiles(now));
    rest.replaceChildren(...nowRest(now));
    const list = (now.metrics || []).slice(0, 4);
    if (list.join() !== drawn) {
      drawn = list.join();
      figures = list.map((m) => figure((form) => `api/run/${id}/metric/${m}.${form}`, m.replaceAll("_", " ")));
      plots.replaceChildren(...figures);
    }
  };
  await main.update();
}

function nowTiles(now) {
  const parts = [], state = make("span", {class: "badge " + (now.state === "running" ? "good" : now.state === "failed" || now.state === "killed" ? "bad" : "")}, now.state);
  parts.push(make("h2", {}, now.name + " ", state, now.start && now.start.model ? make("small", {}, ` ${now.start.model}${now.start.task ? ", " + now.start.task : ""}`) : null));
  if (now.damaged) parts.push(make("p", {class: "bad"}, `${now.damaged}; what comes before it is shown`));
  if (now.end && now.end.error) parts.push(make("p", {class: "bad"}, now.end.error));
  if (!now.last && !now.generated) {
    parts.push(make("p", {}, now.state === "running" ? "No step is recorded yet: the first appears here when it is done." : "The run ended before its first step was recorded."));
    return parts;
  }
  parts.push(make("dl", {class: "tiles"}, ...now.generated ? generationTiles(now) : trainingTiles(now)));
  return parts;
}

function trainingTiles(now) {
  const it = now.last || {}, ratio = it.forecast_seconds ? it.seconds_per_step / it.forecast_seconds : 0;
  return [
    tile("step", it.step ? `${number(it.step)}${it.max_steps ? " of " + number(it.max_steps) : ""}` : "", now.checkpoint ? `saved at step ${number(now.checkpoint.step)}` : "no checkpoint yet"),
    tile("loss", number(it.loss), it.best_eval ? `best eval loss ${number(it.best_eval)}` : ""),
    tile("tokens/s", it.step ? number(Math.round(it.tokens_per_second)) : "", it.seconds_per_step ? `${seconds(it.seconds_per_step)} per step` : ""),
    tile("share of roofline", roofline(it.share_of_roofline), it.bound ? `limited by ${it.bound}` : ""),
    tile("measured / forecast", ratio ? ratio.toFixed(2) : "", it.forecast_seconds ? `forecast ${seconds(it.forecast_seconds)}` : ""),
    tile("time left", seconds(it.eta_s || 0), it.lr ? `learning rate ${it.lr.toPrecision(3)}` : ""),
  ];
}

function generationTiles(now) {
  const g = now.generated, ratio = g.forecast_seconds && now.token_seconds ? now.token_seconds / g.forecast_seconds : 0;
  return [
    tile("new tokens/s", number(Math.round(now.decode_rate)), `${number(g.total_new_tokens)} so far`),
    tile("prompt tokens/s", number(Math.round(now.prefill_rate)), `${number(g.total_prompt_tokens)} so far`),
    tile("sequences", number(g.sequences), `${g.waiting ? number(g.waiting) + " wait, " : ""}${number(g.finished)} finished`),
    tile("cache in use", g.pages ? percent(g.pages_used / g.pages) || "0%" : "", g.pages ? `${number(g.pages_used)} of ${number(g.pages)} pages, ${bytes(g.cache_bytes)}` : ""),
    tile("measured / forecast", ratio ? ratio.toFixed(2) : "", g.forecast_seconds ? `forecast ${seconds(g.forecast_seconds)} per token` : ""),
    tile("share of roofline", roofline(g.share_of_roofline), g.bound ? `limited by ${g.bound}` : ""),
  ];
}

function nowRest(now) {
  const parts = [], most = Math.max(...now.tiers.map((t) => Math.max(t.reserved_bytes, t.measured_bytes, t.budget_bytes)), 1);
  const bar = (t) => {
    const inner = make("div"), mark = make("i"), outer = make("div", {class: "bar", "aria-hidden": "true"}, inner, t.measured_bytes ? mark : null);
    const whole = t.budget_bytes || most;
    inner.style.width = Math.min(100 * t.reserved_bytes / whole, 100).toFixed(1) + "%";
    mark.style.left = Math.min(100 * t.measured_bytes / whole, 100).toFixed(1) + "%";
    return outer;
  };
  if (now.tiers.length) {
    parts.push(make("section", {}, make("h2", {}, "memory against the plan"), make("p", {class: "faint"}, now.strategy ? `${now.strategy}: ${now.reason}` : ""), make("div", wide, make("table", {}, make("caption", {class: "hidden"}, "memory of each tier"),
      make("thead", {}, make("tr", {}, ...["tier", "reserved by the plan", "measured", "limit", ""].map((h) => h ? make("th", {scope: "col"}, h) : make("td")))),
      make("tbody", {}, ...now.tiers.map((t) => make("tr", {}, make("td", {}, t.name), make("td", {}, bytes(t.reserved_bytes)), make("td", {}, t.measured_bytes ? bytes(t.measured_bytes) : ""),
        make("td", {}, t.budget_bytes ? bytes(t.budget_bytes) : ""), make("td", {class: "grow"}, bar(t)))))))));
  }
  parts.push(make("section", {}, make("h2", {}, "this computer"), computer(),
    ...now.alerts.length ? [make("h2", {}, "alerts"), make("ul", {class: "alerts"}, ...now.alerts.map((a) => make("li", {class: a.level === "serious" ? "bad" : ""}, a.step ? `step ${number(a.step)}: ${a.text}` : a.text)))] : []));
  return parts;
}

/** A rate of a link, with its share of what copies reached when it was measured. */
const rateOf = (rate, best) => rate >= 0 ? (rate / 1e9).toFixed(1) + " GB/s" + (best ? `, ${(100 * rate / best).toFixed(0)}%` : "") : "";

function computer() {
  const h = state.host, lines = h.total_bytes ? [["host " + (h.name || ""), `${percent(h.busy) || "0%"} of ${h.cores} cores`, `${bytes(h.total_bytes - h.available_bytes)} of ${bytes(h.total_bytes)}`]] : [];
  for (const g of state.gpus || []) {
    lines.push([`GPU ${g.index} ${g.name || ""}`, g.busy_percent >= 0 ? g.busy_percent + "%" : "", g.memory_bytes > 0 ? `${bytes(g.memory_used_bytes)} of ${bytes(g.memory_bytes)}` : "",
      rateOf(g.link_in_rate, g.link_in_measured_rate), rateOf(g.link_out_rate, g.link_out_measured_rate)]);
  }
  const links = (state.gpus || []).length ? ["link in", "link out"] : [];
  return make("div", wide, rows((state.notes || []).join("; "), ["device", "busy", "memory in use", ...links], lines.map((l) => links.length ? [...l, "", ""].slice(0, 5) : l)));
}

// Runs

const rate = (r) => r.last ? r.last.tokens_per_second : r.generated && r.generated.decode_seconds ? r.generated.new_tokens / r.generated.decode_seconds : undefined;
const texts = ["name", "state", "model"];
const columns = [
  ["name", "run", (r) => r.name], ["state", "state", (r) => r.error && r.state !== "waiting" ? "unreadable" : r.state], ["model", "model", (r) => (r.start && r.start.model) || ""],
  ["step", "step", (r) => (r.last && r.last.step) || (r.generated && r.generated.step) || undefined, number],
  ["loss", "loss", (r) => r.last ? r.last.loss : undefined, number], ["eval", "best eval loss", (r) => (r.last && r.last.best_eval) || undefined, number], ["speed", "tokens/s", rate, (v) => v === undefined ? "" : number(Math.round(v))],
  ["roofline", "roofline", (r) => (r.last || r.generated || {}).share_of_roofline, roofline], ["memory", "device memory", (r) => (r.last || r.generated || {}).measured_bytes, (v) => v ? bytes(v) : ""],
  ["changed", "last written", (r) => r.changed, (v) => v && !v.startsWith("0001") ? new Date(v).toLocaleString("sv") : ""],
];

function showRuns() {
  const body = make("tbody"), overlay = make("div", {class: "plots"}), tables = make("div"), caption = make("caption");
  const search = make("input", {type: "search", "aria-label": "only runs whose name has", placeholder: "only runs whose name has", value: filter, oninput: () => { filter = search.value; fill(); }});
  const header = make("tr", {}, make("th", {scope: "col"}, "compare"), ...columns.map(([key, title]) => make("th", {scope: "col", "data-key": key, class: texts.includes(key) ? "text" : ""},
    make("button", {onclick: () => { sort = {key, up: sort.key === key ? !sort.up : key === "name"}; fill(); }}, title))));
  const line = (r) => make("tr", {}, make("td", {}, make("input", {type: "checkbox", "aria-label": `compare ${r.name}`, ...(compared.has(r.id) ? {checked: ""} : {}), ...(r.error ? {disabled: ""} : {}),
    onchange: (e) => { if (e.target.checked) compared.add(r.id); else compared.delete(r.id); draw(); }})),
    ...columns.map(([key, , of, text]) => make("td", {class: texts.includes(key) ? "text" : ""}, key === "name" ? make("a", {class: "out", href: `#now/${r.id}`}, r.name, r.error ? make("small", {class: "bad"}, r.error) : null) : text ? text(of(r)) : of(r) || "")));
  const fill = () => {
    const [, , value] = columns.find(([key]) => key === sort.key), none = (v) => v === undefined || v === null || v === "";
    const order = (a, b) => none(a) || none(b) ? none(a) - none(b) : (sort.up ? 1 : -1) * (a < b ? -1 : a > b ? 1 : 0);
    const list = state.runs.filter((r) => r.name.includes(filter)).sort((a, b) => order(value(a), value(b)));
    for (const th of header.querySelectorAll("th[data-key]")) {
      if (th.dataset.key === sort.key) th.setAttribute("aria-sort", sort.up ? "ascending" : "descending"); else th.removeAttribute("aria-sort");
    }
    const most = 1000;
    caption.textContent = `${number(list.length)} runs` + (list.length > most ? `; the first ${number(most)} are shown` : "");
    body.replaceChildren(...list.slice(0, most).map(line));
  };
  const draw = async () => {
    if (compared.size === 0) { overlay.replaceChildren(); tables.replaceChildren(make("p", {class: "faint"}, "Mark runs to lay their curves over each other and to see what differs.")); return; }
    const query = [...compared].map((id) => `run=${id}`).join("&");
    const generates = [...compared].every((id) => state.runs.find((r) => r.id === id)?.generated);
    const metrics = generates ? ["decode_rate", "prefill_rate", "cache_used", "device_bytes"] : ["loss", "eval_loss", "tokens_per_second", "device_bytes"];
    overlay.replaceChildren(...metrics.map((m) => figure((form) => `api/compare/${m}.${form}?${query}`, m.replaceAll("_", " "))));
    try {
      const c = await (await ask(`api/compare/all.json?${query}`)).json();
      tables.replaceChildren(...[["figures", c.figures], ["settings that differ", c.settings], ["plans that differ", c.plans], ["machines that differ", c.machines]].filter(([, list]) => list.length)
        .map(([title, list]) => make("div", wide, rows(title, ["what", ...c.runs], list.map((row) => [row.name, ...row.values])))));
    } catch (error) { tables.replaceChildren(make("p", {class: "bad"}, error.message)); }
  };
  main.replaceChildren(make("div", {class: "controls"}, search), make("div", {...wide, class: "scroll list"}, make("table", {}, caption, make("thead", {}, header), body)), make("h2", {}, "side by side"), overlay, tables);
  main.listed = fill;
  fill();
  draw();
}

// Memory

function showMemory() {
  const id = run, place = make("div"), phases = make("select", {"aria-label": "instructions"});
  const draw = () => place.replaceChildren(figure((form) => `api/run/${id}/memory/plan.${form}${phases.value ? "?phase=" + encodeURIComponent(phases.value) : ""}`, "memory"));
  phases.addEventListener("change", draw);
  const controls = make("div", {class: "controls", hidden: ""}, make("label", {}, "instructions ", phases));
  main.replaceChildren(make("p", {class: "faint"}, "What the plan stores in each tier, instruction by instruction, and below it who sits at which address. Nothing is sampled: this is what was reserved, to the byte."), controls, place);
  draw();
  ask(`api/run/${id}/phases`).then((a) => a.json()).then((list) => {
    if (list.length < 2) return;
    phases.replaceChildren(...list.map((p) => make("option", {value: p.name}, p.title)));
    controls.removeAttribute("hidden");
  }, () => { /* the picture says what is wrong */ });
}

// Iteration

async function showIteration() {
  const id = run, says = make("p", {role: "status", id: "selected"}, "");
  const canvas = make("canvas", {tabindex: "0", role: "img", "aria-label": "timeline of one step; arrows pan, plus and minus zoom, n and p select instructions, c goes to what it waited for, f shows or hides what repeats, Home shows all"});
  const address = (form) => `api/run/${id}/timeline/step.${form}`;
  const timeline = await (await ask(address("json"))).json();
  if (run !== id || view !== "iteration") return;
  if (!timeline.lanes.length) { main.replaceChildren(make("p", {}, "The event log of this run has no timeline yet: one is recorded at the third step.")); return; }
  const trace = make("button", {onclick: async () => {
    trace.disabled = true;
    const before = timeline.step, answer = await fetch(`api/run/${id}/trace`, {method: "POST"});
    says.textContent = answer.ok ? "The next step will be timed, and appears here." : "This run cannot be asked.";
    if (answer.ok) main.update = async () => {
      const next = await (await ask(address("json"))).json();
      if (next.step !== before && shown === `iteration/${id}`) showIteration();
    };
  }}, "time the next step");
  const fold = make("button", {"aria-pressed": "true", onclick: () => window.gantt.fold(!window.gantt.folded)}, "show repeated parts once");
  const legend = make("ul", {class: "legend"}, ...[["run", "run"], ["move", "move"], ["reduce", "reduce"], ["update", "update"], ["late", "over a tenth longer than forecast"], ["ink", "critical path (line above)"]].map(([name, text]) => {
    const box = make("i", {"aria-hidden": "true"});
    box.style.background = `var(--c-${name})`;
    return make("li", {}, box, text);
  }));
  const measured = timeline.step ? `, measured ${seconds(timeline.measured_seconds)} at step ${number(timeline.step)}` : ", not measured yet";
  const going = current()?.state === "running";
  main.replaceChildren(make("p", {class: "faint"}, `${timeline.phase ? `One ${timeline.phase}` : "One step"}: forecast ${seconds(timeline.forecast_seconds)}${measured}. Each lane as planned and, below, as measured. Drag to pan, turn the wheel to zoom, click an instruction.`),
    make("div", {class: "controls"}, going ? trace : null, timeline.folds.length ? fold : null, legend), canvas, says, takeAlong(address, "step"), numbers(address, "instructions"),
    make("h2", {}, "lanes"), make("div", wide, rows("", ["lane", "works, forecast", "works, measured", "moves"], timeline.lanes.map((l) => [`${l.device} ${l.queue}`, seconds(l.forecast_seconds), timeline.step ? seconds(l.measured_seconds) : "", l.bytes ? bytes(l.bytes) : ""]))));
  window.gantt = new Gantt(canvas, timeline, (text) => { says.textContent = text; }, (folded) => fold.setAttribute("aria-pressed", String(folded)));
}

// Map, forecast and other plans

async function showMap() {
  const id = run, address = (form) => `api/run/${id}/map/plan.${form}`;
  const [map, motion] = await Promise.all([ask(address("json")), ask(`api/run/${id}/motion`)].map(async (a) => (await a).json()));
  if (run !== id || view !== "map") return;
  const parts = new MapView(map, motion, current()?.state === "running");
  window.map = parts;
  main.leave = () => parts.stop();
  main.replaceChildren(make("p", {class: "faint"}, "Where each parameter buffer is stored between steps, for each purpose. A cell lights up while it is copied, computed with or updated, as the instructions of a step say."), ...parts.elements, takeAlong(address, "map"), numbers(address, "map"));
  parts.start();
}

async function showForecast() {
  const id = run;
  const check = await (await ask(`api/run/${id}/forecast/step.json`)).json();
  if (run !== id || view !== "forecast") return;
  if (!check.points.length) { main.replaceChildren(make("p", {}, "No step of this run was timed yet: one is recorded at the third step.")); return; }
  main.replaceChildren(make("p", {class: "faint"}, `Each point is an instruction of step ${number(check.step)}. Above the diagonal it took longer than forecast.`), figure((form) => `api/run/${id}/forecast/step.${form}`, "forecast"),
    make("h2", {}, "those that took longest beyond their forecast"),
    make("div", wide, rows("", ["lane", "instruction", "forecast", "measured"], (check.worst || []).map((w) => [w.lane, `${w.verb} ${w.name}`, seconds(w.forecast_seconds), seconds(w.measured_seconds)]))));
}

async function showPlans() {
  const id = run, plans = await (await ask(`api/run/${id}/plans`)).json();
  if (run !== id || view !== "plans") return;
  const time = (p) => p.step_seconds ? (p.lower_bound ? "at least " : "") + seconds(p.step_seconds) : "";
  const tradeoff = figure((form) => `api/run/${id}/tradeoff/plans.${form}`, "plans");
  const list = make("div", wide, rows("the plan of the run, and those that the planner did not choose", ["plan", plans.generates ? "time per pass" : "time per step", "device", "pinned", "host", "disk", "why"],
    plans.plans.map((p) => [p.strategy, time(p), ...["device", "pinned", "host", "disk"].map((t) => p.peak_bytes && p.peak_bytes[t] ? bytes(p.peak_bytes[t]) : ""), p.reason])));
  main.replaceChildren(make("div", {class: "plots"}, tradeoff, asking(id, plans, tradeoff)), list);
}

/** A slider for the memory that a plan may take; the planner is asked when it rests. */
function asking(id, plans, tradeoff) {
  if (plans.closed) return make("p", {class: "faint"}, plans.closed);
  const positions = 100, memoryAt = (at) => Math.round(plans.low_bytes * Math.pow(plans.high_bytes / plans.low_bytes, at / positions) / 1024) * 1024 || 1024;
  const first = plans.plans[0], mine = first.peak_bytes.device, place = (memory) => Math.round(positions * Math.log(memory / plans.low_bytes) / Math.log(plans.high_bytes / plans.low_bytes));
  const output = make("output", {for: "memory"}), says = make("div", {role: "status", id: "answer"}, make("p", {class: "faint"}, "Move the slider: the planner says what the run would be with so much memory. The run itself is not changed. No device is opened to plan: another computer's kernels may take a little more or less memory."));
  const slider = make("input", {type: "range", id: "memory", min: "0", max: String(positions), value: String(place(mine)), "aria-label": "device memory that a plan may take"});
  let waits, asked, sweeping = false;
  const label = () => { output.textContent = bytes(memoryAt(Number(slider.value))); slider.setAttribute("aria-valuetext", output.textContent); };
  const query = async (memory) => {
    asked?.abort();
    asked = new AbortController();
    const answer = await fetch(`api/run/${id}/whatif?memory=${memory}`, {method: "POST", signal: asked.signal});
    const text = await answer.text();
    if (!answer.ok) { let error = text; try { error = JSON.parse(text).error; } catch { /* it is plain */ } throw new Error(error); }
    return JSON.parse(text);
  };
  let own; // the run's own limit, asked for in the same way: without the device at hand plans are a little different
  const tell = (a) => {
    if (!a.fits) { says.replaceChildren(make("p", {class: "bad"}, `No plan fits in ${bytes(a.limit_bytes)}: ${a.reason}.`)); return; }
    const ratio = own && own.fits ? a.step_seconds / own.step_seconds : 0, than = `the limit of the run, ${bytes(plans.budget_bytes)}`;
    const speed = !ratio ? "" : Math.abs(ratio - 1) < 0.005 ? `as fast as with ${than}` : `${a.context ? "a token" : "a step"} takes ${ratio.toFixed(2)} × as long as with ${than}`;
    const rate = a.context ? `${number(Number(a.tokens_per_second.toPrecision(3)))} tokens/s` : `${seconds(a.step_seconds)} per step`;
    const texts = !a.context ? "" : `One text, half of ${number(a.context)} tokens being there. ${a.streams > 1 ? `${number(a.streams)} texts at once: ${number(Math.round(a.all_tokens_per_sec))} tokens/s. ` : ""}The first token comes ${seconds(a.prompt_seconds)} after a prompt of ${number(a.prompt_tokens)}.`;
    const tiers = ["device", "pinned", "host", "disk"], stored = (list, t) => (list || []).find((w) => w.tier === t)?.bytes || 0;
    says.replaceChildren(make("p", {}, make("strong", {}, rate), speed ? `, ${speed}` : "", a.bound ? `; limited by ${a.bound}` : ""), ...texts ? [make("p", {}, texts)] : [], make("p", {}, `${a.plan}: ${a.reason}`),
      make("div", wide, rows("memory", ["", "with " + bytes(a.limit_bytes), "the run"], [...tiers.filter((t) => a.peak_bytes[t] || first.peak_bytes[t]).map((t) => [t, bytes(a.peak_bytes[t] || 0), bytes(first.peak_bytes[t] || 0)]),
        ...tiers.filter((t) => stored(a.weights, t) || stored(plans.weights, t)).map((t) => [`weights on ${t}`, bytes(stored(a.weights, t)), bytes(stored(plans.weights, t))])])),
      memoryOf(a));
  };
  const memoryOf = (a) => {
    const place = make("div"), details = make("details", {}, make("summary", {}, "its memory, instruction by instruction"), place);
    details.addEventListener("toggle", () => { if (details.open && !place.firstChild) place.append(figure((form) => `api/run/${id}/whatif/${a.limit_bytes}/memory.${form}`, `memory with ${bytes(a.limit_bytes)}`)); });
    return details;
  };
  const inquire = async (memory) => {
    says.setAttribute("aria-busy", "true");
    output.textContent = `${bytes(memory)}, asking the planner`;
    try {
      if (!own) own = await query(plans.budget_bytes);
      const a = await query(memory);
      tell(a);
      tradeoff.refresh();
      label();
    } catch (error) {
      if (error.name === "AbortError") return;
      says.replaceChildren(make("p", {class: "bad"}, error.message));
      label();
    }
    says.removeAttribute("aria-busy");
  };
  slider.addEventListener("input", () => { sweeping = false; label(); clearTimeout(waits); waits = setTimeout(() => inquire(memoryAt(Number(slider.value))), 350); });
  const sweep = make("button", {onclick: async () => {
    sweeping = !sweeping;
    for (let at = 0; sweeping && at <= positions && shown === `plans/${id}`; at += positions / 10) { slider.value = String(at); await inquire(memoryAt(at)); }
    sweeping = false;
  }}, "ask for the whole range");
  label();
  main.leave = () => { sweeping = false; asked?.abort(); clearTimeout(waits); };
  return make("section", {class: "asking"}, make("h2", {}, "with another limit of device memory"), make("div", {class: "controls"}, slider, output, sweep), says);
}

// Everything

const shows = {now: showNow, runs: showRuns, memory: showMemory, iteration: showIteration, map: showMap, forecast: showForecast, plans: showPlans};

async function show() {
  const key = `${view}/${run}`;
  shown = key;
  main.leave?.();
  main.listed = main.update = main.leave = null;
  figures = [];
  for (const a of document.querySelectorAll("nav a")) {
    a.setAttribute("href", `#${a.dataset.view}${run ? "/" + run : ""}`);
    if (a.dataset.view === view) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  }
  chooser.value = run;
  document.title = `${current() ? current().name + " - " : ""}spillway`;
  delete document.documentElement.dataset.ready;
  const patience = setTimeout(() => { if (shown === key) main.replaceChildren(make("p", {class: "faint", role: "status"}, "Asking for it.")); }, 400);
  const placed = new MutationObserver(() => { if (main.textContent.trim()) clearTimeout(patience); });
  placed.observe(main, {childList: true});
  try {
    if (!run && view !== "runs") showNothing(); else await shows[view]();
  } catch (error) {
    if (shown === key) showNothing(make("h2", {}, current()?.name || "this run"), make("p", {class: "bad", role: "alert"}, error.message), make("p", {}, "Other runs are shown: choose one above, or look at the list of runs."));
  }
  clearTimeout(patience);
  placed.disconnect();
  if (shown === key) document.documentElement.dataset.ready = view;
}

function route() {
  const [name, id] = location.hash.slice(1).split("/");
  view = shows[name] ? name : "now";
  if (id) run = id;
  show();
}

/** Puts what changed into the state: all runs, or some of them. */
function merge(next) {
  if (next.whole) { state = next; return; }
  const changed = new Map(next.runs.map((r) => [r.id, r]));
  state = {...next, runs: state.runs.map((r) => changed.get(r.id) || r)};
}

let beats = 0, changed = 0;
async function receive(next) {
  const first = state.runs.length === 0, before = state.runs.map((r) => r.id + r.name).join();
  merge(next);
  if (before !== state.runs.map((r) => r.id + r.name).join()) {
    chooser.replaceChildren(...state.runs.map((r) => make("option", {value: r.id}, r.name)));
    chooser.value = run;
  }
  const going = state.runs.filter((r) => r.state === "running" && !r.error).length;
  live.textContent = going ? `${number(going)} running` : "none running";
  if (!run && state.runs.length) { run = (state.runs.find((r) => r.state === "running" && !r.error) || state.runs.find((r) => !r.error) || state.runs[0]).id; if (first) { show(); return; } }
  if (main.listed && (next.whole || next.runs.length) && document.activeElement?.type !== "checkbox") main.listed();
  if (main.update && shown === `${view}/${run}`) {
    if (next.whole || next.runs.some((r) => r.id === run)) changed = performance.now();
    if (view === "now" && performance.now() - changed > 3000) return; // the server looks at a log once a second
    try { await main.update(); } catch { /* the next second tries again */ }
    if (++beats % 3 === 0) for (const f of figures) f.refresh();
  }
}

chooser.addEventListener("change", () => { run = chooser.value; location.hash = `${view}/${run}`; });
window.addEventListener("hashchange", route);
try { await receive(await (await ask("api/state")).json()); } catch (error) { live.textContent = error.message; }
route();
const events = new EventSource("events");
events.onmessage = (message) => receive(JSON.parse(message.data));
events.onerror = () => { live.textContent = "no connection; trying again"; };
