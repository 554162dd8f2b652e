// The lineage of a view as a picture: columns of its inputs on the left, its own on the right, a line for each use.
import { el, svg } from "./dom.js";

const ROW = 22;
const LEFT = 330;
const RIGHT = 470;
const WIDTH = 800;
const NAME_MAX = 44; // characters that fit beside the lines
const COLUMNS_MAX = 60; // more is a picture that cannot be read; the table below has all

export function lineagePicture(found) {
  const columns = found.columns.slice(0, COLUMNS_MAX);
  const sources = [...new Map(columns.flatMap((one) => one.from ?? []).map((from) => [nameOf(from), from])).keys()].sort();
  if (sources.length === 0 || sources.length > COLUMNS_MAX) return null;
  const height = ROW * Math.max(sources.length, columns.length) + 8;
  const yOf = (position, all) => 4 + ROW / 2 + position * ROW + ((Math.max(sources.length, columns.length) - all) * ROW) / 2;
  const left = new Map(sources.map((name, position) => [name, yOf(position, sources.length)]));
  const lines = columns.flatMap((one, position) => (one.from ?? []).map((from) => line(left.get(nameOf(from)), yOf(position, columns.length), nameOf(from), one.column)));
  const drawing = svg("svg", { class: "lineage", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `Lineage of ${found.view}; the table below has the same` },
    lines,
    sources.map((name) => label(name, LEFT - 10, left.get(name), "end", { from: name })),
    columns.map((one, position) => label(one.column, RIGHT + 10, yOf(position, columns.length), "start", { to: one.column })));
  drawing.addEventListener("pointerover", (event) => highlight(drawing, event.target.dataset ?? {}));
  drawing.addEventListener("pointerleave", () => highlight(drawing, {}));
  return el("div", { class: "scroll lineage-frame" }, drawing);
}

const nameOf = (from) => `${from.table}.${from.column}`;

const line = (y1, y2, from, to) => svg("path", { d: `M${LEFT} ${y1}C${LEFT + 70} ${y1} ${RIGHT - 70} ${y2} ${RIGHT} ${y2}`, data: { from, to } });

function label(name, x, y, anchor, data) {
  const short = name.length > NAME_MAX ? `${name.slice(0, NAME_MAX - 1)}…` : name;
  return svg("text", { x, y: y + 4, "text-anchor": anchor, data }, short, svg("title", {}, name));
}

function highlight(drawing, { from, to }) {
  const chosen = from !== undefined || to !== undefined;
  for (const one of drawing.querySelectorAll("path")) {
    const uses = chosen && (from === undefined || one.dataset.from === from) && (to === undefined || one.dataset.to === to);
    one.classList.toggle("used", uses);
  }
}
