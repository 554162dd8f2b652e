// Line charts of the last hour: SVG paths in a fixed coordinate space, texts and the reading line in HTML.
import { el, replace, setText, svg } from "./dom.js";
import { duration, time } from "./format.js";

const WIDTH = 720;
const HEIGHT = 100;
export const LINES_MAX = 6; // as many can be told apart; further ones are named below the chart

/** A chart with one or several lines. `format(value)` -> text with the unit. */
export class LineChart {
  constructor(root, { title, format, points = 720, top = nice }) {
    Object.assign(this, { format, points, topOf: top, data: null, at: null });
    this.now = el("span", { class: "chart-now" });
    this.top = el("span", { class: "chart-top" });
    this.plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.line = el("span", { class: "chart-line", hidden: true });
    this.area = el("div", { class: "chart-area", tabindex: "0", role: "img" }, this.plot, this.line, this.top);
    this.span = el("span");
    this.legend = el("ul", { class: "legend", hidden: true });
    this.title = title;
    this.root = el("figure", { class: "chart" },
      el("figcaption", {}, el("span", { class: "chart-title" }, title), this.now),
      this.area, el("div", { class: "chart-axis" }, this.span, el("span", {}, "now")), this.legend);
    root.append(this.root);
    this.area.addEventListener("pointermove", (event) => this.pointAt(event));
    this.area.addEventListener("pointerleave", () => this.read(null));
    this.area.addEventListener("blur", () => this.read(null));
    this.area.addEventListener("keydown", (event) => this.step(event));
  }

  /** Draw `series` ([{name, values, style}], oldest first; without `style` a line is drawn as by its position) of every `everyS` seconds up to `end`. */
  update(series, everyS, end) {
    const drawn = series.slice(0, LINES_MAX);
    const length = Math.max(2, ...drawn.map((one) => one.values.length));
    const known = drawn.flatMap((one) => one.values).filter((value) => value !== null);
    this.data = { series: drawn, everyS, end: new Date(end), length, max: this.topOf(Math.max(0, ...known)) };
    replace(this.plot, svg("path", { class: "grid", d: `M0 ${HEIGHT / 2}H${WIDTH}` }), drawn.map((one, position) => this.path(one, one.style ?? position, drawn.length)));
    setText(this.top, this.format(this.data.max));
    setText(this.span, `${duration((length - 1) * everyS)} ago`);
    this.drawLegend(series.slice(LINES_MAX).length);
    this.area.setAttribute("aria-label", this.summary());
    if (this.at === null) this.drawNow();
    else this.read(Math.min(this.at, length - 1));
  }

  path({ values }, position, lines) {
    const { length, max } = this.data;
    const offset = length - values.length; // series that began later end at the same time
    const parts = [];
    let open = false;
    values.forEach((value, index) => {
      if (value === null) {
        open = false;
        return;
      }
      const x = ((offset + index) / (length - 1)) * WIDTH;
      const y = HEIGHT - (Math.min(value, max) / max) * HEIGHT;
      parts.push(`${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`);
      // A value between two unknown ones is a point, which needs a line to be visible.
      if (!open && (values[index + 1] ?? null) === null) parts.push("h1");
      open = true;
    });
    const shape = svg("path", { class: `line line-${position}`, d: parts.join("") || "M0 0" });
    if (lines > 1) return shape;
    return [svg("path", { class: "fill", d: filled(values, offset, length, max) }), shape];
  }

  drawLegend(left) {
    const { series } = this.data;
    this.legend.hidden = series.length < 2;
    if (this.legend.hidden) return;
    replace(this.legend, series.map((one, position) => el("li", {},
      svg("svg", { class: "swatch", viewBox: "0 0 24 4", "aria-hidden": "true" }, svg("path", { class: `line line-${one.style ?? position}`, d: "M0 2H24" })),
      one.name)), left > 0 ? el("li", {}, `and ${left} more`) : null);
  }

  drawNow() {
    const { series } = this.data;
    setText(this.now, series.length === 1 ? this.format(last(series[0].values)) : "");
  }

  summary() {
    const words = this.data.series.map((one) => {
      const known = one.values.filter((value) => value !== null);
      if (known.length === 0) return `${one.name}: no data`;
      return `${one.name}: now ${this.format(last(one.values))}, lowest ${this.format(Math.min(...known))}, highest ${this.format(Math.max(...known))}`;
    });
    return `${this.title}, last ${duration((this.data.length - 1) * this.data.everyS)}. ${words.join("; ")}`;
  }

  pointAt(event) {
    if (this.data === null) return;
    const frame = this.area.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width));
    this.read(Math.round(part * (this.data.length - 1)));
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -60, PageDown: 60 }[event.key];
    if (by === undefined || this.data === null) return;
    event.preventDefault();
    const last = this.data.length - 1;
    this.read(Math.min(last, Math.max(0, (this.at ?? last) + by)));
  }

  /** Show the values at a point; null: the newest. */
  read(at) {
    this.at = at;
    this.line.hidden = at === null;
    if (this.data === null) return;
    if (at === null) {
      this.drawNow();
      return;
    }
    const { series, everyS, end, length } = this.data;
    this.line.style.left = `${(100 * at) / (length - 1)}%`;
    const values = series.map((one) => {
      const value = one.values[at - (length - one.values.length)] ?? null;
      return series.length === 1 ? this.format(value) : `${one.name} ${this.format(value)}`;
    });
    setText(this.now, `${values.join(" · ")} at ${time(new Date(end.getTime() - (length - 1 - at) * everyS * 1000))}`);
  }
}

function filled(values, offset, length, max) {
  const parts = [];
  let begin = null;
  values.forEach((value, index) => {
    if (value === null) return;
    const x = ((offset + index) / (length - 1)) * WIDTH;
    const y = HEIGHT - (Math.min(value, max) / max) * HEIGHT;
    if (begin === null) parts.push(`M${x.toFixed(1)} ${HEIGHT}`);
    begin ??= x;
    parts.push(`L${x.toFixed(1)} ${y.toFixed(1)}`);
    if ((values[index + 1] ?? null) === null) {
      parts.push(`L${x.toFixed(1)} ${HEIGHT}Z`);
      begin = null;
    }
  });
  return parts.join("") || "M0 0";
}

const last = (values) => values.at(-1) ?? null;

/** Return the end of the axis: 1, 2 or 5 times a power of ten that is not below the largest value. */
export function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}

/** As `nice`, in the unit in which a number of bytes is written: 5 KiB, 200 MiB. */
export function niceBytes(value) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10));
  const found = nice(value / unit);
  return (found > 1000 ? 1024 : found) * unit;
}
