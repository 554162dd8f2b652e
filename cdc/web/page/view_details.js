// One view of a lake: cost over time, lineage down to columns, swap and rollback.
import { LineChart } from "./charts.js";
import { confirmAction } from "./dialogs.js";
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { count, duration, time } from "./format.js";
import { lineagePicture } from "./lineage.js";
import { planWords } from "./lake.js";
import { badge, button, code, empty, facts, problem, section, table } from "./parts.js";
import { link } from "./router.js";
import { canAct } from "./session.js";
import { tableLink } from "./snapshots.js";

export function open(root, query, heading) {
  const { lake = "", view = "" } = query;
  heading.textContent = view ? `View ${view}` : "View";
  if (!lake || !view) {
    root.append(empty("No view is named in the address."));
    return () => {};
  }
  root.append(el("p", { class: "crumbs" }, el("a", { href: "#/lake" }, "All views"), ` · of lake ${lake}`));
  const cost = el("div");
  const lineage = section("Lineage");
  root.append(cost, lineage);
  const costPart = new DocumentPart(cost, {
    path: "/api/lakes", what: "the view", everyS: 5, draw: (found) => state(found, lake, view, () => costPart.reload()),
  });
  const lineagePart = new DocumentPart(lineage, {
    path: "/api/lineage", query: { lake, view }, what: "the lineage", everyS: 60, draw: (found) => drawLineage(found, lake),
  });
  return () => {
    costPart.close();
    lineagePart.close();
  };
}

function state(found, lake, name, reload) {
  const view = found.lakes?.find((one) => one.name === lake)?.views?.find((one) => one.name === name);
  if (view === undefined) return empty(`The lake ${lake} has no view ${name}.`);
  const costs = view.costs ?? [];
  return [
    facts([
      ["State", view.reason ? badge("warn", "behind") : badge("ok", "current")],
      ["Why", view.reason],
      ["Cut", count(view.cut)],
      ["LSN", view.lsn ? code(view.lsn) : null],
      ["Rows written", count(view.rows)],
      ["Plan", planWords(view)],
      ["Why this plan", view.plan_reason],
      ["Last run", duration(view.seconds)],
    ]),
    versions(lake, name, reload),
    section("Plan and cost", costs.length ? [costChart(costs), costRows(costs)] : empty("No run is recorded yet.")),
  ];
}

function costChart(costs) {
  const place = el("div", { class: "chart-grid single" });
  if (costs.length < 2) return null;
  const ends = costs.at(-1).at ?? new Date();
  const every = (new Date(ends) - new Date(costs[0].at ?? ends)) / 1000 / (costs.length - 1);
  const chart = new LineChart(place, { title: "Seconds of each run", format: duration });
  chart.update([{ name: "run", values: costs.map((one) => one.seconds) }], Number.isFinite(every) ? every : 0, ends);
  return place;
}

const costRows = (costs) => table("Runs", [
  { head: "Cut", kind: "number", cell: (one) => count(one.cut) },
  { head: "At", cell: (one) => time(one.at) },
  { head: "Plan", cell: planWords },
  { head: "Time", kind: "number", cell: (one) => duration(one.seconds) },
  { head: "Rows written", kind: "number", cell: (one) => count(one.rows) },
], [...costs].reverse().slice(0, 12), { compact: true });

function versions(lake, view, reload) {
  if (!canAct()) return null;
  const ask = (verb, action, says) => button(verb, async () => {
    const performed = await confirmAction({ heading: `${verb} for ${view}`, says, verb, danger: true, body: () => ({ action, lake, view }) });
    if (performed) reload();
  }, { key: action });
  return el("div", { class: "buttons" },
    ask("Swap versions", "view.swap", "Makes the new version of the view active. The active one is kept for a rollback."),
    ask("Roll back", "view.rollback", "Makes the previous version of the view active again."));
}

function drawLineage(found, lake) {
  const inputs = found.inputs ?? [];
  return [
    found.error ? problem({ message: found.error }, "warn") : null,
    inputs.length ? el("p", {}, "Reads ", inputs.map((one, position) => [position ? ", " : "", input(one, lake)]), ".") : null,
    found.columns?.length ? [lineagePicture(found), columnRows(found.columns)] : null,
  ];
}

const input = (name, lake) => (name.includes(".") ? tableLink(name) : el("a", { href: link("view", { lake, view: name }) }, code(name)));

const columnRows = (columns) => table("Columns of the view", [
  { head: "Column", kind: "wide", cell: (one) => code(one.column) },
  { head: "From", kind: "wide", cell: (one) => ((one.from ?? []).length
    ? el("ul", { class: "plain" }, one.from.map((from) => el("li", {}, code(`${from.table}.${from.column}`)))) : "no column") },
  { head: "Expression", kind: "wide", cell: (one) => (one.expression ? code(one.expression) : "–") },
], columns);
