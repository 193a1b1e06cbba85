// The map of where params are stored, on a canvas: a column per parameter buffer, a row per purpose.
// Cells light up while something happens to them, at the times that the instructions of a step had.

import {bytes, make, number, seconds} from "./parts.js";

const left = 110, rowHeight = 40, strip = 16, glows = {in: "move", out: "move", run: "run", update: "update"};
const tiers = ["device", "pinned", "host", "disk"];

export class MapView {
  /** @param {object} map @param {object} motion @param {boolean} going whether the run goes on */
  constructor(map, motion, going) {
    Object.assign(this, {map, motion, at: 0, playing: false});
    this.canvas = make("canvas", {tabindex: "0", role: "img", "aria-label": "map of parameter buffers; space plays a step, arrows go through its time"});
    this.says = make("p", {role: "status"});
    this.cell = make("p", {class: "faint"}, "Point at a cell to see what it stores.");
    this.play = make("button", {onclick: () => this.toggle()}, "play a step");
    this.slider = make("input", {type: "range", min: "0", max: "1000", value: "0", "aria-label": "time in the step", oninput: () => { this.pause(); this.at = Number(this.slider.value) / 1000; this.draw(); }});
    const moves = motion.moves.length > 0;
    const legend = make("ul", {class: "legend"}, ...[...tiers.filter((t) => map.rows.some((r) => r.cells.some((c) => c.tier === t))).map((t) => [t, t]), ["ink", "line below: streams to the device"],
      ...moves ? [["move", "frame: copied"], ["run", "frame: computed with"], ["update", "frame: updated"]] : []].map(([name, text]) => {
      const box = make("i", {"aria-hidden": "true", class: text.startsWith("frame") ? "frame" : ""});
      if (text.startsWith("frame")) box.style.borderColor = `var(--c-${name})`; else box.style.background = `var(--c-${name})`;
      return make("li", {}, box, text);
    }));
    this.elements = [legend, ...moves ? [make("div", {class: "controls"}, this.play, this.slider)] : [], this.canvas, ...moves ? [this.says] : [], this.cell];
    // A step is shown in some seconds, however short it is; it repeats.
    this.duration = Math.min(Math.max(motion.seconds, 6), 20);
    this.wanted = going && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.canvas.addEventListener("pointermove", (e) => this.point(e.offsetX, e.offsetY));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours(); this.draw(); });
  }

  /** Begins, once the elements are in the page. */
  start() {
    this.colours();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.draw();
    if (this.wanted && this.motion.moves.length) this.toggle();
  }

  stop() { this.pause(); }

  pause() {
    this.playing = false;
    this.play.textContent = "play a step";
  }

  toggle() {
    if (this.playing) { this.pause(); return; }
    this.playing = true;
    this.play.textContent = "pause";
    let last = performance.now();
    const frame = (now) => {
      if (!this.playing || !this.canvas.isConnected) return;
      this.at = (this.at + (now - last) / 1000 / this.duration) % 1;
      last = now;
      this.slider.value = String(Math.round(this.at * 1000));
      this.draw();
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  key(e) {
    const does = {" ": () => this.toggle(), ArrowRight: () => this.go(0.01), ArrowLeft: () => this.go(-0.01), Home: () => this.go(-1)}[e.key];
    if (does && this.motion.moves.length) { e.preventDefault(); does(); }
  }

  go(by) {
    this.pause();
    this.at = Math.min(Math.max(this.at + by, 0), 1);
    this.slider.value = String(Math.round(this.at * 1000));
    this.draw();
  }

  colours() {
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue("--c-" + name).trim();
    this.colour = Object.fromEntries([...tiers, "ink", "faint", "paper", "grid", "move", "run", "update"].map((n) => [n, of(n)]));
  }

  columnWidth() { return Math.max(this.canvas.clientWidth - left, 1) / Math.max(this.map.columns.length, 1); }

  point(x, y) {
    const column = Math.floor((x - left) / this.columnWidth()), row = this.map.rows[Math.floor(y / rowHeight)];
    if (column < 0 || column >= this.map.columns.length || !row || !row.cells[column].bytes) return;
    const c = row.cells[column], by = this.map.updates[column];
    this.cell.textContent = `${this.map.columns[column]}, ${row.class}: ${bytes(c.bytes)} on ${c.tier}${c.streams ? ", streams to the device" : ""}${by ? `; optimizer step by ${by}` : ""}`;
  }

  /** What happens at a time, the latest of each cell. */
  active(time) {
    const found = new Map();
    for (const m of this.motion.moves) {
      const linger = this.motion.seconds * 1e9 / 150; // so that what is short is seen
      if (m.start <= time && time < m.end + linger) found.set(m.row * 1e6 + m.column, m);
    }
    return found;
  }

  draw() {
    const {map, motion} = this, ratio = window.devicePixelRatio || 1, updates = map.updates.some((u) => u);
    const height = map.rows.length * rowHeight + (updates ? strip + 6 : 0) + 18, width = this.columnWidth();
    this.canvas.style.height = height + "px";
    const w = Math.round(this.canvas.clientWidth * ratio), h = Math.round(height * ratio);
    if (this.canvas.width !== w || this.canvas.height !== h) { this.canvas.width = w; this.canvas.height = h; }
    const context = this.canvas.getContext("2d"), time = this.at * motion.seconds * 1e9, lit = motion.moves.length && (this.playing || this.at > 0) ? this.active(time) : new Map();
    this.lit = lit.size;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.colour.paper;
    context.fillRect(0, 0, w, h);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "13px Helvetica Neue,Helvetica,Arial,DejaVu Sans,sans-serif";
    const gap = width > 6 ? 3 : width > 2 ? 1 : 0;
    map.rows.forEach((row, r) => {
      const top = r * rowHeight;
      context.fillStyle = this.colour.ink;
      context.textAlign = "right";
      context.fillText(row.class, left - 10, top + 21);
      row.cells.forEach((c, i) => {
        if (!c.bytes) return;
        const x = left + i * width, glow = lit.get(r * 1e6 + i);
        context.globalAlpha = lit.size && !glow ? 0.45 : 1;
        context.fillStyle = this.colour[c.tier];
        context.fillRect(x, top + 3, Math.max(width - gap, 0.5), rowHeight - 14);
        context.globalAlpha = 1;
        if (c.streams) { context.fillStyle = this.colour.ink; context.fillRect(x, top + rowHeight - 9, Math.max(width - gap, 0.5), 3); }
        if (!glow) return;
        context.strokeStyle = this.colour[glows[glow.kind]];
        context.lineWidth = 4;
        context.strokeRect(x + 2, top + 3, Math.max(width - gap - 4, 1), rowHeight - 14);
        context.strokeStyle = context.fillStyle = this.colour.paper;
        context.lineWidth = 1.5;
        if (width > 12) context.strokeRect(x + 5, top + 6, width - gap - 10, rowHeight - 20);
        if (width > 16) {
          context.textAlign = "center";
          context.fillText({in: "↑", out: "↓", run: "▶", update: "✓"}[glow.kind], x + (width - gap) / 2, top + 21);
        }
      });
    });
    const under = map.rows.length * rowHeight;
    if (updates) {
      context.fillStyle = this.colour.ink;
      context.textAlign = "right";
      context.fillText("updated by", left - 10, under + 13);
      map.updates.forEach((u, i) => {
        if (!u) return;
        context.fillStyle = this.colour[u === "host" ? "host" : "device"];
        context.fillRect(left + i * width, under + 2, Math.max(width - gap, 0.5), strip - 4);
      });
    }
    context.fillStyle = this.colour.faint;
    context.textAlign = "left";
    context.fillText(map.columns.length ? `${number(map.columns.length)} parameter buffers, from ${map.columns[0]} to ${map.columns[map.columns.length - 1]}` : "", left, height - 3);
    const words = {in: "copied to the device", out: "copied back", run: "computed with", update: "updated"};
    const happens = [...lit.values()].slice(0, 3).map((m) => `${map.columns[m.column]} ${map.rows[m.row].class} ${words[m.kind]}`).join("; ");
    this.says.textContent = `${seconds(this.at * motion.seconds) || "0 s"} of ${seconds(motion.seconds)}, ${motion.step ? `as measured at step ${number(motion.step)}` : "as forecast"}${happens ? ": " + happens : ""}`;
  }
}
