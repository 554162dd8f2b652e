// Shapes of the levels, so that colour is never the only sign.
import { svg } from "./dom.js";

const SHAPES = {
  ok: [["circle", { cx: 8, cy: 8, r: 7 }], ["path", { class: "cut", d: "M4.6 8.3l2.4 2.4 4.4-5" }]],
  busy: [["circle", { class: "line", cx: 8, cy: 8, r: 6 }], ["path", { d: "M8 2a6 6 0 0 1 0 12z" }]],
  warn: [["path", { d: "M8 1l7.4 13.5H.6z" }], ["path", { class: "cut", d: "M8 5.8v4M8 11.7v1" }]],
  bad: [["path", { d: "M5 1h6l4 4v6l-4 4H5l-4-4V5z" }], ["path", { class: "cut", d: "M5.4 5.4l5.2 5.2M10.6 5.4l-5.2 5.2" }]],
  off: [["circle", { class: "line", cx: 8, cy: 8, r: 6 }], ["path", { class: "line", d: "M5 8h6" }]],
};
export const LEVELS = Object.keys(SHAPES);

/** A level the page does not know counts as off. */
export const levelOf = (level) => (LEVELS.includes(level) ? level : "off");

export function icon(level) {
  const shapes = SHAPES[levelOf(level)].map(([name, attributes]) => svg(name, attributes));
  return svg("svg", { class: `icon ${levelOf(level)}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, shapes);
}
