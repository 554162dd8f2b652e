// Events as a list: one line each, with the values before and after inside.
import { el } from "./dom.js";
import { shown, shownKey, jsonText } from "./exact.js";
import { time } from "./format.js";
import { code } from "./parts.js";
import { link } from "./router.js";

const OPS = { c: "insert", u: "update", d: "delete", r: "snapshot", t: "truncate", m: "message" };

export function eventItem(one, { history = true } = {}) {
  const changed = changedColumns(one);
  const summary = el("summary", {},
    el("span", { class: "event-at" }, time(one.at)),
    el("span", { class: `op op-${one.op in OPS ? one.op : "other"}` }, OPS[one.op] ?? one.op ?? "unknown"),
    el("span", { class: "event-table" }, one.table ?? one.topic ?? ""),
    el("span", { class: "event-key" }, one.key === null || one.key === undefined ? "" : shownKey(one.key)),
    el("span", { class: "event-changed" }, changed.length && one.op === "u" ? `changed ${changed.join(", ")}` : ""));
  const details = el("details", { class: "event", data: { key: `event ${one.topic} ${one.partition} ${one.offset}` } }, summary);
  // The values are built when they are first looked at: a tail has hundreds of events.
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(body(one, changed, history));
  });
  return el("li", {}, details);
}

function body(one, changed, history) {
  return el("div", { class: "event-body" },
    el("p", { class: "hint" }, `LSN ${one.lsn ?? "unknown"}, ${one.topic} partition ${one.partition} offset ${one.offset}`,
      one.txid ? `, transaction ${one.txid}` : "", ". ",
      history && one.key ? el("a", { href: link("key", { table: one.table, key: jsonText(one.key) }) }, "History of this key") : null),
    values(one, changed));
}

function values(one, changed) {
  const names = [...new Set([...Object.keys(one.before ?? {}), ...Object.keys(one.after ?? {})])];
  if (names.length === 0) return el("p", { class: "hint" }, "No values: they need the token.");
  const row = (name) => el("tr", { class: changed.includes(name) ? "changed" : null },
    el("th", { scope: "row" }, name, changed.includes(name) ? el("span", { class: "hidden-text" }, " (changed)") : null),
    value(one.before, name), value(one.after, name));
  return el("div", { class: "scroll" }, el("table", { class: "values" },
    el("thead", {}, el("tr", {}, ["Column", "Before", "After"].map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, names.map(row))));
}

function value(row, name) {
  if (row === null || row === undefined) return el("td", { class: "absent" }, "–");
  if (!(name in row)) return el("td", { class: "absent" }, "not in the event");
  return el("td", {}, row[name] === null ? el("i", {}, "null") : code(shown(row[name])));
}

function changedColumns(one) {
  if (!one.before || !one.after) return [];
  return Object.keys(one.after).filter((name) => name in one.before && jsonText(one.before[name]) !== jsonText(one.after[name]));
}
