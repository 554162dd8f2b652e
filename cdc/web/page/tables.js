// Tables: captured ones, their snapshots, and those that are not captured, with the reason.
import { el } from "./dom.js";
import { count } from "./format.js";
import { badge, code, command, table } from "./parts.js";
import { listPage } from "./list_page.js";
import { snapshotProgress, snapshotState, tableLink } from "./snapshots.js";

const STATES = [["", "all"], ["captured", "captured"], ["snapshot", "with a snapshot"], ["left_out", "not captured"]];

export const open = (root, query) => listPage(root, query, {
  path: "tables", what: "tables", states: STATES, draw,
  nothing: "No tables yet. Capture lists them when it has connected to PostgreSQL.",
});

const draw = (rows) => table("Tables", [
  { head: "Table", kind: "wide", cell: (one) => tableLink(one.table) },
  { head: "State", cell: state },
  { head: "Snapshot, or why not", kind: "wide", cell: snapshotOrReason },
  { head: "Topic", kind: "wide", cell: (one) => (one.topic ? code(one.topic) : "–") },
  { head: "Key", kind: "names", cell: (one) => ((one.key ?? []).length ? code(one.key.join(", ")) : one.state === "left_out" ? "–" : "no key") },
  { head: "Format", cell: (one) => one.format ?? "–" },
  { head: "Schemas", kind: "number", cell: (one) => count(one.schemas) },
], rows);

function snapshotOrReason(one) {
  if (one.left_out) return whyNot(one.left_out);
  if (!one.snapshot) return "–";
  return el("div", { class: "snapshot-progress" }, snapshotState(one.snapshot), snapshotProgress(one.snapshot));
}

function state(one) {
  if (one.state === "left_out") return badge("warn", "not captured");
  return badge("ok", "captured");
}

/** Why a table is not captured, and the statement that changes it. */
export const whyNot = (one) => el("div", { class: "why-not" },
  el("p", {}, (one.reason ?? "").replaceAll("_", " ") || one.problem || "no reason given"),
  one.problem && one.problem !== one.reason && one.reason ? el("p", { class: "hint" }, one.problem) : null,
  command(one.statement), one.by ? el("p", { class: "hint" }, `Run it as ${one.by}.`) : null);
