// The overview: picture, what needs attention, charts of the last hour, snapshots in progress.
import { DocumentPart } from "./document.js";
import { LINES_MAX, LineChart, niceBytes } from "./charts.js";
import { el, replace } from "./dom.js";
import { bytes, count, decimal, duration, plural } from "./format.js";
import { Flow } from "./flow.js";
import { pageAt } from "./pages.js";
import { empty, problem, runbook, section } from "./parts.js";
import { snapshotRows } from "./snapshots.js";
import { onPicture } from "./stream.js";

const CHARTS = [
  { title: "Rows captured", format: (value) => `${decimal(value)} rows/s`, names: /^rows_per_second$/ },
  { title: "Lag of the log", format: duration, names: /^lag_seconds$/ },
  { title: "WAL kept for the slot", format: bytes, top: niceBytes, names: /^retained_bytes$/ },
  { title: "WAL written", format: (value) => `${bytes(value)}/s`, top: niceBytes, names: /^wal_bytes_per_second$/ },
  { title: "Lag of sinks", format: duration, names: /^sink:(.+):lag_seconds$/ },
  { title: "Waiting records of sinks", format: (value) => plural(value, "record"), names: /^sink:(.+):lag_records$/ },
  { title: "Records applied", format: (value) => `${decimal(value)} records/s`, names: /^sink:(.+):records_per_second$/ },
  { title: "Lakes behind the log", format: bytes, top: niceBytes, names: /^sink:(.+):behind_bytes$/ },
];
const FIRST = 4; // charts of capture itself, shown also while they have no data

export function open(root) {
  const attention = el("div");
  const picture = el("div", { class: "picture" });
  const charts = el("div", { class: "charts" });
  const snapshots = el("div");
  const noted = el("div");
  root.append(attention, picture,
    el("section", { class: "part" }, el("h2", {}, "Last hour"), charts), snapshots, noted);
  const flow = new Flow(picture);
  const waiting = empty("Reading the state of the pipeline ...");
  picture.append(waiting);
  let before = "";
  const end = onPicture((found) => {
    if (found === null) return;
    waiting.remove();
    flow.update(found);
    const now = JSON.stringify([found.attention, found.snapshots, found.snapshots_open, found.level]);
    if (now === before) return;
    before = now;
    replace(attention, attentionPart("Needs attention", found.attention.filter(isUrgent)));
    replace(noted, attentionPart("Noted", found.attention.filter((one) => !isUrgent(one))));
    replace(snapshots, snapshotPart(found));
  });
  const history = new ChartsPart(charts);
  return () => {
    end();
    flow.close();
    history.close();
  };
}

class ChartsPart {
  constructor(root) {
    const grid = el("div", { class: "chart-grid" });
    root.append(grid);
    const drawn = new Map();
    this.part = new DocumentPart(root, {
      path: "/api/history", what: "the charts", everyS: 5, draw: () => [],
      report: (found) => {
        for (const [position, chart] of CHARTS.entries()) {
          const series = seriesOf(found.series ?? {}, chart.names);
          if (series.length === 0 && position >= FIRST) continue;
          if (!drawn.has(chart)) drawn.set(chart, new LineChart(grid, chart));
          drawn.get(chart).update(series.length ? series : [{ name: chart.title, values: [] }], found.every_s, found.end);
        }
      },
    });
  }

  close() {
    this.part.close();
  }
}

function seriesOf(all, names) {
  const sinks = sinksOf(all);
  const found = Object.entries(all).flatMap(([key, values]) => {
    const match = names.exec(key);
    return match === null || !values.some((value) => value !== null) ? [] : [{ name: match[1] ?? key.replaceAll("_", " "), values }];
  });
  // A sink has the same line in every chart, as long as there are enough kinds of lines.
  if (found.length < 2 || sinks.length > LINES_MAX) return found;
  return found.map((one) => ({ ...one, style: sinks.indexOf(one.name) }));
}

function sinksOf(all) {
  return [...new Set(Object.keys(all).flatMap((key) => /^sink:(.+):[a-z_]+$/.exec(key)?.[1] ?? []))].sort();
}

const isUrgent = (one) => one.level === "bad" || one.level === "warn";

function attentionPart(heading, list) {
  if (list.length === 0) return null;
  return el("section", { class: "part attention" },
    el("h2", {}, `${heading} (${count(list.length)})`),
    el("ul", { class: "plain" }, list.map((one) => el("li", {},
      problem({ message: one.says, hint: one.hint, command: one.command }, one.level, el("div", { class: "attention-head" },
        el("span", {}, one.what), el("span", { class: "attention-links" }, one.runbook && isUrgent(one) ? runbook(one.runbook) : null, one.page ? el("a", { href: `#/${one.page}` }, `Show ${pageAt(one.page)?.name.toLowerCase() ?? one.page}`) : null)))))));
}

function snapshotPart(found) {
  const list = found.snapshots ?? [];
  if (!found.snapshots_count) return null;
  const open = list.filter((one) => one.state !== "complete");
  const words = found.snapshots_open
    ? `${count(found.snapshots_open)} of ${plural(found.snapshots_count, "table")} ${found.snapshots_open === 1 ? "is" : "are"} not complete.`
    : `The snapshots of ${plural(found.snapshots_count, "table")} are complete.`;
  const more = found.snapshots_open > open.length
    ? el("p", {}, el("a", { href: "#/tables?state=snapshot" }, "Show all tables with a snapshot"))
    : null;
  return section("Snapshots", el("p", {}, words), open.length ? snapshotRows(open) : null, more);
}
