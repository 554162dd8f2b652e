// The picture of the pipeline: a box for each node, a labelled line for each edge. Boxes are updated in place.
import { el, replace, setText } from "./dom.js";
import { lag, rate } from "./format.js";
import { FlowLines } from "./flow_lines.js";
import { icon, levelOf } from "./icons.js";
import { problem } from "./parts.js";

const PAGE_OF = { source: "tables", slot: "alarms", log: "topics", lake: "lake", views: "lake" };
const COLUMN_OF = { source: 1, slot: 3, log: 5, views: 9 };
const SINK_COLUMN = 7;

/** Words for the level of an edge. */
export function edgeState(edge) {
  if (edge.level === "ok") return edge.rate > 0 ? "flowing" : edge.rate_unit ? "idle" : "current";
  if (edge.level === "warn") return edge.rate > 0 ? "behind" : "waiting";
  return { busy: "catching up", bad: "stopped" }[edge.level] ?? "off";
}

export class Flow {
  constructor(root) {
    this.list = el("ol", { class: "flow", "aria-label": "Flow of changes" });
    this.lines = new FlowLines(this.list);
    this.boxes = new Map();
    this.labels = new Map();
    this.order = "";
    root.append(this.list);
  }

  update(picture) {
    const titles = new Map(picture.nodes.map((node) => [node.id, node.title]));
    const order = JSON.stringify([picture.nodes.map((node) => [node.id, node.kind]), picture.edges.map((edge) => [edge.from, edge.to])]);
    if (order !== this.order) this.arrange(picture);
    this.order = order;
    for (const node of picture.nodes) this.boxes.get(node.id).update(node);
    for (const edge of picture.edges) this.labels.get(edgeId(edge))?.update(edge, titles);
    this.lines.update(picture.edges, this.boxes);
  }

  /** Create boxes and labels in reading order: each edge before the node it leads to. */
  arrange(picture) {
    this.boxes = new Map(picture.nodes.map((node) => [node.id, new Box(node)]));
    this.labels = new Map();
    const children = [];
    let row = 0;
    for (const node of picture.nodes) {
      const box = this.boxes.get(node.id);
      const column = COLUMN_OF[node.kind] ?? SINK_COLUMN;
      if (column === SINK_COLUMN) row += 1;
      for (const edge of picture.edges.filter((one) => one.to === node.id && this.boxes.has(one.from))) {
        const label = new Label(column === SINK_COLUMN);
        this.labels.set(edgeId(edge), label);
        place(label.item, column - 1, Math.max(1, row));
        children.push(label.item);
      }
      place(box.item, column, Math.max(1, row), column < SINK_COLUMN ? Math.max(1, sinkCount(picture)) : 1);
      children.push(box.item);
    }
    const kinds = new Set(picture.nodes.map((node) => node.kind));
    this.list.classList.toggle("no-views", row > 0 && !kinds.has("views"));
    this.list.classList.toggle("no-sinks", row === 0);
    replace(this.list, this.lines.drawing, children);
  }

  close() {
    this.lines.close();
  }
}

const sinkCount = (picture) => picture.nodes.filter((node) => !(node.kind in COLUMN_OF)).length;
export const edgeId = (edge) => `${edge.from} ${edge.to}`;

function place(item, column, row, rows = 1) {
  item.style.gridColumn = String(column);
  item.style.gridRow = rows > 1 ? `${row} / span ${rows}` : String(row);
}

class Box {
  constructor(node) {
    this.state = el("span", { class: "box-state" });
    this.title = el("a", { class: "box-title", href: `#/${PAGE_OF[node.kind] ?? "sinks"}` });
    this.detail = el("p", { class: "box-detail" });
    this.says = el("div", { class: "box-says" });
    this.facts = el("dl", { class: "box-facts" });
    this.shape = el("span", { class: "box-shape" });
    this.item = el("li", { class: "box" },
      el("div", { class: "box-head" }, this.title, el("span", { class: "box-right" }, this.shape, this.state)),
      this.detail, this.says, this.facts);
    this.level = "";
    this.saidBefore = "";
    this.factsBefore = "";
  }

  update(node) {
    setText(this.title, node.title);
    setText(this.state, node.state ?? "");
    setText(this.detail, node.detail ?? "");
    this.detail.title = node.detail ?? "";
    this.setLevel(levelOf(node.level), node.kind);
    const said = JSON.stringify([node.says, node.error, node.level]);
    if (said !== this.saidBefore) {
      this.saidBefore = said;
      replace(this.says, boxProblem(node));
    }
    this.setFacts(node.facts ?? []);
  }

  setLevel(level, kind) {
    if (level === this.level) return;
    this.level = level;
    this.item.className = `box level-${level} ${kind in COLUMN_OF ? `at-${kind}` : "at-sink"}`;
    replace(this.shape, icon(level));
  }

  setFacts(facts) {
    const names = JSON.stringify(facts.map(([name]) => name));
    if (names !== this.factsBefore) {
      this.factsBefore = names;
      replace(this.facts, facts.map(([name]) => el("div", {}, el("dt", {}, name), el("dd"))));
    }
    const places = this.facts.querySelectorAll("dd");
    facts.forEach(([, value], position) => setText(places[position], value ?? ""));
  }
}

function boxProblem(node) {
  const level = levelOf(node.level);
  if (node.error) {
    const message = node.says || node.error.message || node.error.error;
    return problem({ message, hint: node.error.hint, command: node.error.command }, level);
  }
  return node.says ? problem({ message: node.says }, level) : null;
}

class Label {
  constructor(isOfSink) {
    this.from = el("span", { class: "hidden-text" });
    this.rate = el("span", { class: "edge-rate" });
    this.lag = el("span", { class: "edge-lag" });
    this.size = el("span", { class: "edge-size" });
    this.state = el("span", { class: "edge-state" });
    this.item = el("li", { class: isOfSink ? "edge of-sink" : "edge" }, this.from, this.rate, this.lag, this.size, this.state);
  }

  update(edge, titles) {
    setText(this.from, `${titles.get(edge.from) ?? edge.from} to ${titles.get(edge.to) ?? edge.to}: `);
    // An edge without units has neither a rate nor a lag, as that from a lake to its views.
    setText(this.rate, edge.rate_unit ? rate(edge.rate, edge.rate_unit) : "");
    const [time, size] = lags(edge);
    setText(this.lag, time || size ? `lag ${time || size}` : edge.lag_unit ? "lag unknown" : "");
    setText(this.size, time && edge.lag > 0 ? size : "");
    setText(this.state, edgeState(edge));
    this.item.className = `edge level-${levelOf(edge.level)}${this.item.classList.contains("of-sink") ? " of-sink" : ""}`;
  }
}

/** Return the lag as a time and as a size; empty texts where unknown. */
function lags(edge) {
  return [[edge.lag_seconds, "s"], [edge.lag, edge.lag_unit]]
    .map(([value, unit]) => (value === null || value === undefined ? "" : lag(value, unit)));
}
