// A timeline on a canvas: lanes as rows, the forecast above and the measurement below. Each pixel
// of a row is the bar that begins or goes on there, so that a frame costs the same however many
// bars there are. What repeats, such as equal blocks, is shown once and can be opened.

import {seconds} from "./parts.js";

const verbs = ["move", "run", "reduce", "update", "free"];
const left = 110, rowHeight = 22, laneGap = 14, axis = 24, legible = 64;

/** First bar, from one on, whose end is behind a time; bars of a lane are in order of their times. */
function firstVisible(times, from, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= from) low = middle + 1; else high = middle;
  }
  return low;
}

/** A colour of the style sheet as a pixel, opaque. */
function pixel(colour) {
  const n = parseInt(colour.slice(1), 16);
  return (255 << 24 | (n & 255) << 16 | (n >> 8 & 255) << 8 | n >> 16) >>> 0;
}

/** Puts times on an axis that leaves stretches out: [from, to] each, with a gap in their place. */
class ShownTime {
  constructor(cuts, end) {
    this.cuts = cuts;
    this.gap = 0;
    const kept = cuts.reduce((sum, [from, to]) => sum - (to - from), end);
    this.gap = cuts.length ? kept / 50 : 0;
    this.end = this.at(end);
  }

  at(time) {
    let out = 0;
    for (const [from, to] of this.cuts) {
      if (time <= from) break;
      if (time < to) return from - out;
      out += to - from - this.gap;
    }
    return time - out;
  }

  hides(start, end) { return this.cuts.some(([from, to]) => start >= from && end <= to && start < to); }
}

export class Gantt {
  /** @param {HTMLCanvasElement} canvas @param {object} timeline @param {(text: string) => void} tell @param {(folded: boolean) => void} toggled */
  constructor(canvas, timeline, tell, toggled = () => {}) {
    Object.assign(this, {canvas, timeline, tell, toggled, frames: 0, drawn: 0, selected: null});
    this.off = document.createElement("canvas");
    this.byNumber = new Map();
    this.fold(timeline.folds.length > 0, true);
    this.colours();
    this.resize();
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours(); this.draw(); });
    canvas.addEventListener("wheel", (e) => { if (!e.ctrlKey && Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX * (this.to - this.from) / this.width()); else this.zoom(Math.exp(e.deltaY / 300), this.timeAt(e.offsetX)); e.preventDefault(); }, {passive: false});
    canvas.addEventListener("pointerdown", (e) => { this.drag = e.offsetX; this.moved = false; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => {
      if (this.drag === undefined) return;
      if (Math.abs(e.offsetX - this.drag) > 2) this.moved = true;
      this.pan((this.drag - e.offsetX) * (this.to - this.from) / this.width());
      this.drag = e.offsetX;
    });
    canvas.addEventListener("pointerup", (e) => { if (!this.moved) this.select(this.barAt(e.offsetX, e.offsetY)); this.drag = undefined; });
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  /** Shows what repeats once, or all of it. */
  fold(folded, first = false) {
    const t = this.timeline, both = t.step > 0 && t.forecast_seconds > 0;
    this.folded = folded;
    const cuts = (from, to) => folded ? t.folds.map((f) => [f[from], f[to]]) : [];
    this.planned = new ShownTime(cuts("from", "to"), t.forecast_seconds * 1e9);
    this.ran = new ShownTime(cuts("from_ran", "to_ran"), t.measured_seconds * 1e9);
    this.end = Math.max(this.planned.end, this.ran.end, 1);
    // Rows: one of the forecast, and where a step was measured one of it, per lane.
    this.rows = [];
    for (const lane of t.lanes) {
      const name = lane.device + " " + lane.queue;
      if (t.forecast_seconds > 0) this.rows.push(this.row(lane, name, false));
      if (t.step > 0) this.rows.push(this.row(lane, both ? "measured" : name, true));
    }
    const perLane = both ? 2 : 1;
    this.height = t.lanes.length * (perLane * rowHeight + laneGap) + axis;
    this.top = (row) => row * rowHeight + Math.floor(row / perLane) * laneGap;
    this.from = 0;
    this.to = this.end;
    if (first) return;
    this.toggled(folded);
    this.resize();
  }

  row(lane, name, measured) {
    const time = measured ? this.ran : this.planned, start = measured ? "measured_start" : "start", end = measured ? "measured_end" : "end";
    const shown = lane.bars.filter((b) => b[end] > 0 && !time.hides(b[start], b[end])).sort((a, b) => a[start] - b[start]), n = shown.length;
    const row = {name, lane: lane.device + " " + lane.queue, measured, bars: shown, starts: new Float64Array(n), ends: new Float64Array(n), verb: new Uint8Array(n), late: new Uint8Array(n), critical: new Uint8Array(n)};
    const marks = measured === this.timeline.step > 0;
    for (let i = 0; i < n; i++) {
      const b = shown[i], forecast = b.end - b.start;
      row.starts[i] = time.at(b[start]);
      row.ends[i] = time.at(b[end]);
      row.verb[i] = b.verb;
      row.late[i] = measured && this.timeline.forecast_seconds > 0 && b.measured_end - b.measured_start - forecast > forecast / 10 ? 1 : 0;
      row.critical[i] = b.critical && marks ? 1 : 0;
      if (marks) this.byNumber.set(b.i, b);
    }
    return row;
  }

  colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--c-" + name).trim();
    this.ink = {ink: of("ink"), faint: of("faint"), grid: of("grid"), late: of("late"), paper: of("paper")};
    this.pixels = verbs.map((v) => pixel(of(v)));
    this.latePixel = pixel(this.ink.late);
    this.inkPixel = pixel(this.ink.ink);
  }

  width() { return Math.max(this.canvas.clientWidth - left, 1); }
  timeAt(x) { return this.from + (x - left) / this.width() * (this.to - this.from); }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = this.height + "px";
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.off.width = Math.max(Math.round(this.width() * ratio), 1);
    this.off.height = Math.max(3 * this.rows.length, 1); // bars, what is late, what is critical
    this.image = new ImageData(this.off.width, this.off.height);
    this.buffer = new Uint32Array(this.image.data.buffer);
    this.draw();
  }

  pan(ns) {
    const span = this.to - this.from;
    this.from = Math.min(Math.max(this.from + ns, 0), Math.max(this.end - span, 0));
    this.to = this.from + span;
    this.request();
  }

  zoom(factor, around) {
    const span = Math.min(Math.max((this.to - this.from) * factor, 100), this.end);
    const share = (around - this.from) / (this.to - this.from);
    this.from = Math.min(Math.max(around - share * span, 0), this.end - span);
    this.to = this.from + span;
    this.request();
  }

  request() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  key(e) {
    const span = this.to - this.from, middle = (this.from + this.to) / 2;
    const does = {
      ArrowRight: () => this.pan(span / 8), ArrowLeft: () => this.pan(-span / 8), "+": () => this.zoom(0.7, middle), "=": () => this.zoom(0.7, middle), "-": () => this.zoom(1 / 0.7, middle),
      Home: () => { this.from = 0; this.to = this.end; this.request(); }, n: () => this.step(1), p: () => this.step(-1), c: () => this.cause(), f: () => { if (this.timeline.folds.length) this.fold(!this.folded); },
    }[e.key];
    if (does) { e.preventDefault(); does(); }
  }

  /** Selects the next or the previous bar of a row. */
  step(by) {
    const row = this.selected ? this.rows[this.selected.row] : this.rows[0];
    const at = this.selected ? this.selected.at + by : 0;
    if (row && row.bars[at]) this.select({row: this.rows.indexOf(row), at});
  }

  /** Selects what the selected bar waited for. */
  cause() {
    if (!this.selected) return;
    const row = this.rows[this.selected.row], number = row.bars[this.selected.at].after;
    for (let r = 0; r < this.rows.length; r++) {
      const at = this.rows[r].measured === row.measured ? this.rows[r].bars.findIndex((b) => b.i === number) : -1;
      if (at >= 0) { this.select({row: r, at}); return; }
    }
  }

  barAt(x, y) {
    const time = this.timeAt(x), slack = 2 / this.width() * (this.to - this.from);
    for (let r = 0; r < this.rows.length; r++) {
      if (y < this.top(r) || y >= this.top(r) + rowHeight) continue;
      const row = this.rows[r], at = firstVisible(row.ends, time - slack, 0, row.bars.length);
      if (at < row.bars.length && row.starts[at] <= time + slack) return {row: r, at};
    }
    return null;
  }

  select(found) {
    this.selected = found;
    if (!found) { this.tell(""); this.request(); return; }
    const row = this.rows[found.row], bar = row.bars[found.at], t = this.timeline;
    if (row.starts[found.at] > this.to || row.ends[found.at] < this.from) this.pan((row.starts[found.at] + row.ends[found.at]) / 2 - (this.from + this.to) / 2);
    let text = `${row.lane}: ${verbs[bar.verb]} ${t.names[bar.name]}`;
    if (bar.block >= 0) text += `, block ${bar.block}`;
    if (bar.micro_batch >= 0) text += `, micro-batch ${bar.micro_batch}`;
    const says = (label, start, end) => {
      if (end <= start) return;
      text += `; ${label} ${seconds((end - start) / 1e9)}`;
      if (bar.verb === 0 && bar.bytes > 0) text += ` at ${(bar.bytes / (end - start)).toPrecision(3)} GB/s`;
    };
    says("forecast", bar.start, bar.end);
    if (t.step > 0) says("measured", bar.measured_start, bar.measured_end);
    const planned = bar.end - bar.start, took = bar.measured_end - bar.measured_start;
    if (t.step > 0 && planned > 0 && took > 0) text += `, ${(100 * planned / took).toFixed(0)}% of its forecast's speed`;
    if (bar.bytes > 0) text += `; ${bar.bytes.toLocaleString("en")} bytes`;
    const cause = this.byNumber.get(bar.after);
    if (cause) text += `; waited for ${verbs[cause.verb]} ${t.names[cause.name]} (c)`;
    if (bar.critical) text += "; on the critical path";
    this.tell(text);
    this.request();
  }

  draw() {
    const context = this.canvas.getContext("2d"), ratio = window.devicePixelRatio || 1, width = this.width(), scale = width / (this.to - this.from);
    this.frames++;
    this.drawn = 0;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.ink.paper;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "12px Helvetica Neue,Helvetica,Arial,DejaVu Sans,sans-serif";
    this.drawAxis(context, scale);
    this.buffer.fill(0);
    for (let r = 0; r < this.rows.length; r++) this.paint(r);
    this.off.getContext("2d").putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    for (let r = 0; r < this.rows.length; r++) {
      const row = this.rows[r], top = this.top(r), w = this.off.width;
      context.drawImage(this.off, 0, 3 * r, w, 1, left, top, width, rowHeight - 3);
      context.drawImage(this.off, 0, 3 * r + 1, w, 1, left, top + rowHeight - 6, width, 3);
      context.drawImage(this.off, 0, 3 * r + 2, w, 1, left, top - 1, width, 3);
      context.fillStyle = row.measured && row.name === "measured" ? this.ink.faint : this.ink.ink;
      context.textAlign = "right";
      context.fillText(row.name, left - 8, top + 14, left - 12);
      this.write(context, r, top, scale, width);
      this.drawCuts(context, row, top, scale);
    }
    if (this.selected && this.rows[this.selected.row]) {
      const row = this.rows[this.selected.row], x = (row.starts[this.selected.at] - this.from) * scale, end = (row.ends[this.selected.at] - this.from) * scale;
      context.strokeStyle = this.ink.ink;
      context.lineWidth = 2;
      if (end >= 0 && x <= width) context.strokeRect(left + Math.max(x, 0), this.top(this.selected.row), Math.max(Math.min(end, width) - Math.max(x, 0), 3), rowHeight - 3);
    }
  }

  /** Puts a row into the buffer: a pixel is the bar that begins or goes on in it. */
  paint(r) {
    const {starts, ends, verb, late, critical} = this.rows[r], n = starts.length, w = this.off.width, perPixel = (this.to - this.from) / w;
    const bars = this.buffer.subarray(3 * r * w, (3 * r + 1) * w), lates = this.buffer.subarray((3 * r + 1) * w, (3 * r + 2) * w), criticals = this.buffer.subarray((3 * r + 2) * w, (3 * r + 3) * w);
    let at = 0, before = -1;
    for (let x = 0; x < w && at < n; x++) {
      const from = this.from + x * perPixel, to = from + perPixel;
      if (ends[at] <= from) at = at + 8 < n && ends[at + 8] <= from ? firstVisible(ends, from, at + 8, n) : firstVisible(ends, from, at, Math.min(at + 9, n));
      if (at >= n) break;
      if (starts[at] >= to) { // nothing until then
        x = Math.min(Math.floor((starts[at] - this.from) / perPixel), w) - 1;
        continue;
      }
      if (at !== before) { this.drawn++; before = at; }
      const end = ends[at];
      if (end <= to && end - starts[at] > 5 * perPixel) continue; // the last pixel of a wide bar stays free, so that bars are told apart
      bars[x] = this.pixels[verb[at]];
      if (late[at]) lates[x] = this.latePixel;
      if (critical[at]) criticals[x] = this.inkPixel;
    }
  }

  /** Writes names into bars that are wide enough. */
  write(context, r, top, scale, width) {
    const row = this.rows[r], n = row.bars.length, letter = 6.1;
    context.textAlign = "left";
    context.fillStyle = this.ink.paper;
    for (let at = firstVisible(row.ends, this.from, 0, n), written = 0; at < n && row.starts[at] < this.to && written < 60;) {
      const x = Math.max((row.starts[at] - this.from) * scale, 0), end = Math.min((row.ends[at] - this.from) * scale, width);
      if (end - x >= legible) {
        const bar = row.bars[at], name = this.timeline.names[bar.name], words = name.replace(/^(model|transformer)\./, "").split(" "), most = Math.floor((end - x - 8) / letter);
        if (bar.verb === 1 && bar.block >= 0) words.unshift(String(bar.block));
        while (words.length > 1 && words.join(" ").length > most) words.pop();
        if (words.join(" ").length <= most) { context.fillText(words.join(" "), left + x + 4, top + 14); written++; }
      }
      // On to the next that could be as wide: it ends so far behind.
      const next = this.from + (Math.max(end, 0) + legible * 0.999) / scale;
      at = Math.max(firstVisible(row.ends, next, at + 1, n), at + 1);
    }
  }

  /** Draws dots where something is left out. */
  drawCuts(context, row, top, scale) {
    const time = row.measured ? this.ran : this.planned;
    context.fillStyle = this.ink.faint;
    context.textAlign = "center";
    time.cuts.forEach(([from], i) => {
      const x = left + (time.at(from) + time.gap / 2 - this.from) * scale;
      if (x > left && x < left + this.width()) context.fillText(time.gap * scale > 34 ? `${this.timeline.folds[i].hidden} more` : "…", x, top + 14);
    });
  }

  drawAxis(context, scale) {
    const span = this.to - this.from;
    let step = Math.pow(10, Math.floor(Math.log10(span / 5)));
    while (span / step > 10) step *= 2;
    context.textAlign = "center";
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = left + (t - this.from) * scale;
      context.fillStyle = this.ink.grid;
      context.fillRect(x, 0, 1, this.height - axis);
      context.fillStyle = this.ink.faint;
      context.fillText(seconds(t / 1e9) || "0", x, this.height - 8);
    }
  }
}
