// A timeline on a canvas: lanes as rows, the forecast above and the measurement below. It draws
// what is visible, bars that fall on one pixel once, so that fifty thousand of them pan smoothly.

const verbs = ["move", "run", "reduce", "update", "free"];
const left = 96, rowHeight = 20, laneGap = 16, axis = 22;

/** First bar, from one on, whose end is behind a time; bars of a lane are in order of their times. */
function firstVisible(times, from, low = 0) {
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < from) low = middle + 1; else high = middle;
  }
  return low;
}

function duration(seconds) {
  if (seconds >= 1) return seconds.toPrecision(3) + " s";
  if (seconds >= 1e-3) return (seconds * 1e3).toPrecision(3) + " ms";
  return (seconds * 1e6).toPrecision(3) + " µs";
}

export class Gantt {
  /** @param {HTMLCanvasElement} canvas @param {object} timeline @param {(text: string) => void} tell */
  constructor(canvas, timeline, tell) {
    this.canvas = canvas;
    this.timeline = timeline;
    this.tell = tell;
    this.end = Math.max(timeline.forecast_seconds, timeline.measured_seconds, 1e-9) * 1e9;
    this.from = 0;
    this.to = this.end;
    this.frames = 0;
    this.selected = null;
    // Rows: one of the forecast, and where a step was measured one of it, per lane.
    this.rows = [];
    for (const lane of timeline.lanes) {
      const name = lane.device + " " + lane.queue;
      const order = (start, end, measured) => {
        const bars = lane.bars.map((bar) => ({bar, start: bar[start], end: bar[end]})).sort((a, b) => a.start - b.start);
        this.rows.push({name, measured, bars, ends: bars.map((b) => b.end)});
      };
      order("start", "end", false);
      if (timeline.step > 0) order("measured_start", "measured_end", true);
    }
    const perLane = timeline.step > 0 ? 2 : 1;
    this.height = timeline.lanes.length * (perLane * rowHeight + laneGap) + axis;
    this.top = (row) => row * rowHeight + Math.floor(row / perLane) * laneGap;
    this.colours();
    this.resize();
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours(); this.draw(); });
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(Math.exp(e.deltaY / 300), this.timeAt(e.offsetX)); }, {passive: false});
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

  colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--c-" + name).trim();
    this.colour = verbs.map(of);
    this.ink = {ink: of("ink"), faint: of("faint"), grid: of("grid"), late: of("late"), paper: of("paper")};
  }

  width() { return this.canvas.clientWidth - left; }
  timeAt(x) { return this.from + (x - left) / this.width() * (this.to - this.from); }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = this.height + "px";
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.height * ratio);
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
      Home: () => { this.from = 0; this.to = this.end; this.request(); }, n: () => this.step(1), p: () => this.step(-1),
    }[e.key];
    if (does) { e.preventDefault(); does(); }
  }

  /** Selects the next or the previous bar of a row. */
  step(by) {
    const row = this.selected ? this.selected.row : this.rows[0];
    const at = this.selected ? row.bars.indexOf(this.selected.item) + by : 0;
    if (row.bars[at]) this.select({row, item: row.bars[at]});
  }

  barAt(x, y) {
    const time = this.timeAt(x), slack = 2 / this.width() * (this.to - this.from);
    for (let r = 0; r < this.rows.length; r++) {
      if (y < this.top(r) || y >= this.top(r) + rowHeight) continue;
      const row = this.rows[r];
      const item = row.bars[firstVisible(row.ends, time - slack)];
      if (item && item.start <= time + slack) return {row, item};
    }
    return null;
  }

  select(found) {
    this.selected = found;
    if (!found) { this.tell(""); this.request(); return; }
    const {bar} = found.item, t = this.timeline;
    let text = `${found.row.name}: ${verbs[bar.verb]} ${t.names[bar.name]}`;
    if (bar.block >= 0) text += `, block ${bar.block}`;
    if (bar.micro_batch >= 0) text += `, micro-batch ${bar.micro_batch}`;
    const says = (label, start, end) => {
      if (end <= start) return;
      text += `; ${label} ${duration((end - start) / 1e9)}`;
      if (bar.verb === 0 && bar.bytes > 0) text += ` at ${(bar.bytes / (end - start)).toPrecision(3)} GB/s`;
    };
    says("forecast", bar.start, bar.end);
    if (t.step > 0) says("measured", bar.measured_start, bar.measured_end);
    if (bar.bytes > 0) text += `; ${bar.bytes.toLocaleString("en")} bytes`;
    this.tell(text);
    this.request();
  }

  draw() {
    const context = this.canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
    const width = this.width(), scale = width / (this.to - this.from);
    this.frames++;
    this.drawn = 0;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.ink.paper;
    context.fillRect(0, 0, this.canvas.clientWidth, this.height);
    context.font = "12px Helvetica Neue,Helvetica,Arial,sans-serif";
    this.drawAxis(context, width, scale);
    for (let r = 0; r < this.rows.length; r++) {
      const row = this.rows[r], top = this.top(r), bars = row.bars;
      context.fillStyle = row.measured ? this.ink.faint : this.ink.ink;
      context.textAlign = "right";
      context.fillText(row.measured ? "measured" : row.name, left - 8, top + 14, left - 12);
      let drawnTo = -1, verb = -1;
      for (let i = firstVisible(row.ends, this.from); i < bars.length && bars[i].start <= this.to; i++) {
        const x = Math.max((bars[i].start - this.from) * scale, 0), end = Math.min((bars[i].end - this.from) * scale, width);
        if (end - x < 1 && end < drawnTo + 1) { // on to the first that ends on another pixel
          i = firstVisible(row.ends, this.from + (drawnTo + 1) / scale, i + 1) - 1;
          continue;
        }
        drawnTo = end;
        this.drawn++;
        const bar = bars[i].bar;
        if (bar.verb !== verb) { // setting a colour costs more than a bar
          verb = bar.verb;
          context.fillStyle = this.colour[verb];
        }
        context.fillRect(left + x, top, Math.max(end - x - (end - x > 3 ? 0.7 : 0), 1), rowHeight - 3);
        const late = bar.measured_end - bar.measured_start - (bar.end - bar.start);
        if (row.measured && late > (bar.end - bar.start) / 10 && end - x > 1) {
          context.fillStyle = this.ink.late;
          context.fillRect(left + x, top + rowHeight - 6, end - x, 3);
          verb = -1;
        }
        if (this.selected && this.selected.item === bars[i]) {
          context.strokeStyle = this.ink.ink;
          context.lineWidth = 2;
          context.strokeRect(left + x, top, Math.max(end - x, 2), rowHeight - 3);
        }
      }
    }
  }

  drawAxis(context, width, scale) {
    const span = this.to - this.from;
    let step = Math.pow(10, Math.floor(Math.log10(span / 5)));
    while (span / step > 10) step *= 2;
    context.textAlign = "center";
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = left + (t - this.from) * scale;
      context.fillStyle = this.ink.grid;
      context.fillRect(x, 0, 1, this.height - axis);
      context.fillStyle = this.ink.faint;
      context.fillText(duration(t / 1e9), x, this.height - 6);
    }
  }
}
