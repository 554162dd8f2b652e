// Snapshots: progress of a table, and the actions.
import { confirmAction } from "./dialogs.js";
import { el } from "./dom.js";
import { bytes, count, duration, plural } from "./format.js";
import { badge, button, code, facts, field, progress, table } from "./parts.js";
import { link } from "./router.js";
import { canAct } from "./session.js";

const LEVELS = { complete: "ok", reading: "busy", sweeping: "busy", waiting: "busy", paused: "warn", stopped: "bad" };

export const tableLink = (name) => el("a", { href: link("table", { name }), data: { key: `table ${name}` } }, code(name));

/** The state of a snapshot as a badge. */
export const snapshotState = (snapshot) => badge(LEVELS[snapshot.state] ?? "off", snapshot.state);

/** Progress in words: a bar, the time left, what it waits for. */
export function snapshotProgress(snapshot) {
  if (snapshot.state === "complete") return el("span", {}, `${plural(snapshot.rows, "row")}, ${bytes(snapshot.bytes)}`);
  return el("div", { class: "snapshot-progress" },
    progress(snapshot.blocks_done, snapshot.blocks, `Snapshot of ${snapshot.table}`),
    el("span", {}, plural(snapshot.rows, "row"), snapshot.rows_per_second ? `, ${count(snapshot.rows_per_second)} rows/s` : ""),
    snapshot.eta_seconds === null || snapshot.eta_seconds === undefined ? null : el("span", {}, `ready in ${duration(snapshot.eta_seconds)}`),
    snapshot.keys_left ? el("span", {}, `${plural(snapshot.keys_left, "key")} left`) : null,
    snapshot.waits_for.length ? el("span", { class: "waits" }, `waits for ${snapshot.waits_for.join("; ")}`) : null);
}

/** Tables with a snapshot, as a table with actions. */
export function snapshotRows(snapshots) {
  return table("Snapshots", [
    { head: "Table", kind: "wide", cell: (one) => tableLink(one.table) },
    { head: "State", cell: snapshotState },
    { head: "Progress", kind: "wide", cell: snapshotProgress },
    { head: "Actions", cell: (one) => snapshotActions(one.table, one) },
  ], snapshots);
}

export const snapshotFacts = (snapshot) => facts([
  ["State", snapshotState(snapshot)],
  ["Progress", snapshotProgress(snapshot)],
  ["Number", count(snapshot.number)],
  ["Size", bytes(snapshot.bytes)],
  ["Chunks", snapshot.state === "complete" ? null : `${count(snapshot.chunks_reading)} being read, ${count(snapshot.chunks_waiting)} waiting`],
]);

/** Buttons for the snapshot of a table; none without a token on the server. */
export function snapshotActions(name, snapshot, done = () => {}) {
  if (!canAct()) return null;
  const state = snapshot?.state ?? "none";
  const offered = [];
  if (["waiting", "reading", "sweeping"].includes(state)) offered.push(["Pause", "snapshot.pause", "Pauses the snapshot. Changes are captured meanwhile."]);
  if (state === "paused") offered.push(["Resume", "snapshot.resume", "Resumes the snapshot from where it is."]);
  if (["waiting", "reading", "sweeping", "paused"].includes(state)) {
    offered.push(["Stop", "snapshot.stop", "Stops the snapshot. Rows that existed before capture stay missing until you start it again."]);
  }
  if (["complete", "stopped", "none"].includes(state)) offered.push(["Start snapshot", "snapshot.start", ""]);
  return el("div", { class: "buttons" }, offered.map(([words, action, says]) => button(
    words, () => (action === "snapshot.start" ? start(name, done) : confirm(words, action, says, name, done)),
    { key: `${action} ${name}` })));
}

async function confirm(words, action, says, name, done) {
  const performed = await confirmAction({
    heading: `${words} snapshot of ${name}`, says, verb: words, danger: action === "snapshot.stop",
    body: () => ({ action, tables: [patternFor(name)] }),
  });
  if (performed) done();
}

async function start(name, done) {
  const where = el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "e.g. id >= 1000" });
  const performed = await confirmAction({
    heading: `Start snapshot of ${name}`, verb: "Start", fields: [field("Only rows that match (SQL condition, optional)", where)],
    says: "Copies the rows of the table into its topic again. Changes are captured meanwhile.",
    body: () => ({ action: "snapshot.start", tables: [patternFor(name)], where: where.value.trim() || undefined }),
  });
  if (performed) done();
}

/** Return the pattern that matches only this name, as actions take shell patterns. */
export function patternFor(name) {
  const escaped = name.replace(/[*?[]/g, "[$&]");
  return escaped.startsWith("!") ? `?${escaped.slice(1)}` : escaped;
}
