// Dead letters: groups by table and error; keys with the token; retry and skip.
import { askToken, confirmAction } from "./dialogs.js";
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { shownKey } from "./exact.js";
import { count, plural, time } from "./format.js";
import { button, code, empty, problem, section, table } from "./parts.js";
import { canAct } from "./session.js";
import { patternFor, tableLink } from "./snapshots.js";

export function open(root, query) {
  const sink = query.sink ?? "";
  root.append(el("p", { class: "intro" }, "Records that a store refused. Later records of the same key wait behind them.",
    sink ? [` Shown: those of the sink ${sink}. `, el("a", { href: "#/dead-letters" }, "Show all")] : null));
  const part = new DocumentPart(root, {
    path: "/api/dead-letters", query: { sink }, what: "the dead letters", everyS: 5,
    draw: (found) => draw(found, () => part.reload()),
  });
  return () => part.close();
}

function draw(found, reload) {
  const unread = Object.entries(found.unread ?? {});
  const nothing = !found.groups?.length && unread.length === 0;
  return [
    unread.map(([sink, why]) => problem({ message: `Cannot read the dead letters of ${sink}: ${why}` }, "warn")),
    nothing ? empty("No dead letters.") : null,
    found.groups?.length ? section("By table and error", groupRows(found.groups, reload)) : null,
    found.groups?.length ? section("Keys", keyPart(found.keys, reload)) : null,
  ];
}

function groupRows(groups, reload) {
  return table("Groups of dead letters", [
    { head: "Table", kind: "wide", cell: (one) => tableLink(one.table) },
    { head: "Sink", cell: (one) => one.sink },
    { head: "Error", cell: (one) => code(one.error) },
    { head: "Keys", kind: "number", cell: (one) => count(one.keys) },
    { head: "Records", kind: "number", cell: (one) => count(one.records) },
    { head: "Since", cell: (one) => time(one.since) },
    ...actions((one) => ({ sink: one.sink, tables: [patternFor(one.table)], error: one.error }), (one) => `${plural(one.keys, "key")} of ${one.table}`, reload),
  ], groups);
}

function keyPart(keys, reload) {
  if (keys === null || keys === undefined) {
    return [empty("Keys are values of rows: they are shown only with the token."),
      canAct() ? button("Enter token", async () => (await askToken()) && reload()) : null];
  }
  return table("Keys with dead letters", [
    { head: "Key", kind: "wide", cell: (one) => code(shownKey(one.key)) },
    { head: "Table", kind: "wide", cell: (one) => tableLink(one.table) },
    { head: "Sink", cell: (one) => one.sink },
    { head: "Error", kind: "wide", cell: (one) => el("div", {}, code(one.error ?? "–"), one.reason ? el("p", { class: "hint" }, one.reason) : null) },
    { head: "Tries", kind: "number", cell: (one) => count(one.tries) },
    { head: "Records", kind: "number", cell: (one) => count(one.records) },
    { head: "Since", cell: (one) => time(one.since) },
    { head: "Requested", cell: (one) => one.requested || "–" },
    ...actions((one) => ({ sink: one.sink, tables: [patternFor(one.table)], key: one.key }), (one) => `key ${shownKey(one.key)} of ${one.table}`, reload),
  ], keys);
}

function actions(filter, words, reload) {
  if (!canAct()) return [];
  const ask = (one, verb, action, says) => button(verb, async () => {
    const performed = await confirmAction({
      heading: `${verb} ${words(one)}`, says, verb, danger: action.endsWith("skip"), body: () => ({ action, ...filter(one) }),
    });
    if (performed) reload();
  }, { key: `${action} ${words(one)} ${one.sink} ${one.error}` });
  return [{ head: "Actions", cell: (one) => el("div", { class: "buttons" },
    ask(one, "Retry", "dead_letters.retry", "The sink applies these records again."),
    ask(one, "Skip", "dead_letters.skip", "The sink drops these records, so the store never gets them. Later records of the keys are applied.")) }];
}
