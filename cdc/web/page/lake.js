// Lakes: cuts, views, and the plan and cost of each view over time.
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { count, duration, plural, time } from "./format.js";
import { badge, code, empty, facts, problem, table } from "./parts.js";
import { link } from "./router.js";
import { spark } from "./spark_line.js";

const CUTS = 10;

export function open(root) {
  const part = new DocumentPart(root, {
    path: "/api/lakes", what: "the lakes", everyS: 5,
    draw: (found) => (found.lakes?.length ? found.lakes.map(lake)
      : empty("No lake is configured. Add a section [sinks.NAME] with kind = \"warehouse\" to cdc.toml.")),
  });
  return () => part.close();
}

const lake = (one) => el("section", { class: "part" },
  el("h2", {}, one.name),
  one.error ? problem(typeof one.error === "string" ? { message: `Cannot read the lake: ${one.error}` } : one.error) : null,
  facts([
    ["Folder", one.where ? code(one.where) : null],
    ["Newest cut", one.cut === null || one.cut === undefined ? "none yet" : count(one.cut)],
    ["Complete up to", one.lsn ? code(one.lsn) : null],
    ["Published", one.published_at ? time(one.published_at) : null],
  ]),
  el("h3", {}, "Views"),
  one.views?.length ? viewRows(one) : empty("The lake has no views."),
  el("h3", {}, "Cuts"),
  one.cuts?.length ? cutRows(one.cuts) : empty("No cut is published yet."));

const viewRows = (one) => table(`Views of ${one.name}`, [
  { head: "View", kind: "wide", cell: (view) => el("a", { href: link("view", { lake: one.name, view: view.name }), data: { key: `view ${one.name} ${view.name}` } }, code(view.name)) },
  { head: "State", cell: (view) => (view.reason ? badge("warn", "behind") : badge("ok", "current")) },
  { head: "Cut", kind: "number", cell: (view) => count(view.cut) },
  { head: "Rows written", kind: "number", cell: (view) => count(view.rows) },
  { head: "Plan", cell: planWords },
  { head: "Last run", kind: "number", cell: (view) => duration(view.seconds) },
  { head: "Runs", cell: (view) => spark(view.costs ?? [], `Seconds of the last runs of ${view.name}`) },
  { head: "Why this plan", kind: "wide", cell: (view) => view.reason || view.plan_reason || "–" },
], one.views);

/** How a view was computed last. */
export const planWords = (view) => ({ affected: "affected keys", recompute: "recompute" })[view.plan] ?? view.plan ?? "–";

function cutRows(cuts) {
  const rows = (some) => table("Cuts, newest first", [
    { head: "Cut", kind: "number", cell: (cut) => count(cut.cut) },
    { head: "Published", cell: (cut) => time(cut.at) },
    { head: "LSN", cell: (cut) => code(cut.lsn ?? "–") },
    { head: "Views computed", kind: "number", cell: (cut) => `${count(cut.computed)} of ${count(cut.views)}` },
    { head: "Slowest view", kind: "number", cell: (cut) => duration(cut.slowest_seconds) },
  ], some, { compact: true });
  if (cuts.length <= CUTS) return rows(cuts);
  return [rows(cuts.slice(0, CUTS)), el("details", { data: { key: "earlier cuts" } },
    el("summary", {}, `${plural(cuts.length - CUTS, "earlier cut")}`), rows(cuts.slice(CUTS)))];
}
