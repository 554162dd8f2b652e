// A small row of bars: one per run of a view. Recomputed runs are hollow, so that plans differ without colour.
import { el, svg } from "./dom.js";
import { duration } from "./format.js";

const BARS = 24;
const HEIGHT = 20;

export function spark(costs, label) {
  const shown = costs.slice(-BARS);
  if (shown.length === 0) return el("span", {}, "–");
  const max = Math.max(...shown.map((one) => one.seconds ?? 0), 0.001);
  const bars = shown.map((one, position) => {
    const height = Math.max(1, ((one.seconds ?? 0) / max) * (HEIGHT - 1));
    return svg("rect", { class: one.plan === "affected" ? "affected" : "recompute", x: position * 5 + 0.5, y: HEIGHT - height, width: 3.5, height });
  });
  const words = `${label}: ${duration(shown.at(-1).seconds)} last, ${duration(max)} at most`;
  return svg("svg", { class: "spark", viewBox: `0 0 ${shown.length * 5} ${HEIGHT}`, width: shown.length * 5, height: HEIGHT, role: "img", "aria-label": words }, bars);
}
