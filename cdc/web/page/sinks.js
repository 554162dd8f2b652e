// Sinks: state, lag, workers, and the actions pause and resume.
import { confirmAction } from "./dialogs.js";
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { badge, button, code, empty, facts, problem } from "./parts.js";
import { link } from "./router.js";
import { canAct } from "./session.js";

const KINDS = { search: "search index", cache: "cache", plugin: "plugin", lake: "lake", warehouse: "lake" };

export function open(root) {
  const part = new DocumentPart(root, {
    path: "/api/sinks", what: "the sinks", everyS: 2,
    draw: (found) => (found.sinks?.length
      ? el("div", { class: "cards" }, found.sinks.map((one) => card(one, () => part.reload())))
      : empty("No sinks are configured. Add a section [sinks.NAME] to cdc.toml.")),
  });
  return () => part.close();
}

function card(one, reload) {
  const isLake = one.kind === "lake" || one.kind === "warehouse";
  return el("section", { class: "card" },
    el("div", { class: "card-head" }, el("h2", {}, one.name), badge(one.level, one.state)),
    el("p", { class: "detail" }, [KINDS[one.kind] ?? one.kind, one.detail].filter(Boolean).join(" · ")),
    one.error ? problem(typeof one.error === "string" ? { message: one.error } : one.error, one.level === "ok" ? "warn" : one.level)
      : one.reason ? el("p", { class: "hint" }, one.reason) : null,
    facts([
      ["Lag", lagWords(one)],
      ["Objective", one.objective ? objectiveWords(one.objective) : null],
      ["Complete up to", one.lsn ? code(one.lsn) : null],
      ["Newest cut", one.cut === null || one.cut === undefined ? null : count(one.cut)],
      ["Blocked keys", one.blocked_keys ? count(one.blocked_keys) : null],
      ["Workers", one.workers === null || one.workers === undefined ? null : count(one.workers)],
      ["Last sign of life", one.heartbeat_age_seconds === null || one.heartbeat_age_seconds === undefined ? null : `${duration(one.heartbeat_age_seconds)} ago`],
      ["Restarts", one.restarts ? count(one.restarts) : null],
      ["Now", one.busy || null],
    ]),
    views(one.views_behind),
    el("div", { class: "buttons" }, isLake ? el("a", { class: "button", href: link("lake") }, "Cuts and views") : pauseButton(one, reload),
      isLake ? null : el("a", { class: "button", href: link("dead-letters", { sink: one.name }) }, "Dead letters")));
}

function lagWords(one) {
  const words = [];
  if (one.lag_seconds !== null && one.lag_seconds !== undefined) words.push(duration(one.lag_seconds));
  if (one.lag_records !== null && one.lag_records !== undefined) words.push(`${count(one.lag_records)} records`);
  if (one.behind_bytes !== null && one.behind_bytes !== undefined) words.push(`${bytes(one.behind_bytes)} of WAL`);
  return words.join(", ") || "unknown";
}

function objectiveWords(objective) {
  const behind = objective.freshness_seconds === null ? "an unknown time" : duration(objective.freshness_seconds);
  const left = Math.max(0, 100 * objective.budget_left).toFixed(0);
  return `${behind} of ${duration(objective.objective_seconds)} behind PostgreSQL; ${left} % of the error budget is left`;
}

function views(behind) {
  const names = Object.entries(behind ?? {});
  if (names.length === 0) return null;
  return el("div", { class: "problem warn" }, el("p", { class: "says" }, "Views behind the newest cut:"),
    el("ul", {}, names.map(([name, why]) => el("li", {}, code(name), `: ${why}`))));
}

function pauseButton(one, reload) {
  if (!canAct()) return null;
  const [verb, action, says] = one.state === "PAUSED"
    ? ["Resume", "sink.resume", "The sink continues from its position."]
    : ["Pause", "sink.pause", "The sink applies no records until you resume it, also after a restart. Capture continues."];
  return button(verb, async () => {
    const performed = await confirmAction({ heading: `${verb} sink ${one.name}`, says, verb, body: () => ({ action, sink: one.name }) });
    if (performed) reload();
  }, { key: `pause ${one.name}` });
}
