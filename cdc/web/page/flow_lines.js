// The lines between the boxes of the picture: measures the boxes and draws SVG paths.
import { svg } from "./dom.js";
import { levelOf } from "./icons.js";

const PORT = 22; // px from the top of a box to its line
const BEND = 8;
const BUS = 12; // px from a box to the line that leads to boxes in further rows
const INDENT = 18; // px from the left of a box, where the layout is vertical

export class FlowLines {
  constructor(list) {
    this.list = list;
    this.group = svg("g");
    this.drawing = svg("svg", { class: "flow-lines", "aria-hidden": "true" }, this.group);
    this.paths = new Map();
    this.edges = [];
    this.boxes = new Map();
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(list);
  }

  update(edges, boxes) {
    this.edges = edges;
    this.boxes = boxes;
    this.draw();
  }

  close() {
    this.watch.disconnect();
  }

  draw() {
    const frame = this.list.getBoundingClientRect();
    const seen = new Set();
    for (const edge of this.edges) {
      const from = this.boxes.get(edge.from)?.item;
      const to = this.boxes.get(edge.to)?.item;
      if (!from?.isConnected || !to?.isConnected) continue;
      const id = `${edge.from} ${edge.to}`;
      seen.add(id);
      this.drawEdge(id, edge, route(within(from, frame), within(to, frame)));
    }
    for (const [id, line] of this.paths) {
      if (seen.has(id)) continue;
      line.group.remove();
      this.paths.delete(id);
    }
  }

  drawEdge(id, edge, { path, head }) {
    let line = this.paths.get(id);
    if (line === undefined) {
      line = { base: svg("path", { class: "base" }), traffic: svg("path", { class: "traffic" }), head: svg("path", { class: "head" }) };
      line.group = svg("g", {}, line.base, line.traffic, line.head);
      this.paths.set(id, line);
      this.group.append(line.group);
    }
    set(line.group, "class", `line level-${levelOf(edge.level)} ${speed(edge)}`);
    set(line.base, "d", path);
    set(line.traffic, "d", path);
    set(line.head, "d", head);
  }
}

function set(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function speed(edge) {
  if (!(edge.rate > 0) || edge.level === "bad" || edge.level === "off") return "still";
  const perSecond = edge.rate_unit === "B/s" ? edge.rate / 300 : edge.rate;
  if (perSecond < 10) return "slow";
  return perSecond < 1000 ? "middle" : "fast";
}

function within(node, frame) {
  const found = node.getBoundingClientRect();
  return {
    left: found.left - frame.left, right: found.right - frame.left,
    top: found.top - frame.top, bottom: found.bottom - frame.top,
  };
}

/** Return the path from one box to another, and the head of its arrow. */
export function route(from, to) {
  if (to.left >= from.right) return across(from, to);
  return to.left > from.left + BUS ? alongside(from, to) : down(from, to);
}

function across(from, to) {
  const [startY, endY] = [from.top + PORT, to.top + PORT];
  const head = `M${to.left} ${endY}l-7 -4v8z`;
  if (Math.abs(startY - endY) < 1) return { path: `M${from.right} ${startY}H${to.left - 6}`, head };
  const bus = from.right + BUS;
  const turn = endY > startY ? BEND : -BEND;
  const path = `M${from.right} ${startY}H${bus - BEND}q${BEND} 0 ${BEND} ${turn}V${endY - turn}q0 ${turn} ${BEND} ${turn}H${to.left - 6}`;
  return { path, head };
}

function down(from, to) {
  const x = Math.max(from.left, to.left) + INDENT;
  return { path: `M${x} ${from.bottom}V${to.top - 6}`, head: `M${x} ${to.top}l-4 -7h8z` };
}

function alongside(from, to) {
  const [x, y] = [from.left + BUS, to.top + PORT];
  const path = `M${x} ${from.bottom}V${y - BEND}q0 ${BEND} ${BEND} ${BEND}H${to.left - 6}`;
  return { path, head: `M${to.left} ${y}l-7 -4v8z` };
}
