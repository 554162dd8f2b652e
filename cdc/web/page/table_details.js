// One table: columns, schema versions, snapshot, findings.
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { badge, code, empty, facts, section, table } from "./parts.js";
import { link } from "./router.js";
import { findingRows } from "./findings.js";
import { snapshotActions, snapshotFacts } from "./snapshots.js";
import { whyNot } from "./tables.js";

export function open(root, query, heading) {
  const name = query.name ?? "";
  heading.textContent = name ? `Table ${name}` : "Table";
  if (!name) {
    root.append(empty("No table is named in the address."));
    return () => {};
  }
  root.append(el("p", { class: "crumbs" }, el("a", { href: "#/tables" }, "All tables"), " · ",
    el("a", { href: link("events", { tables: name }) }, "Events of this table"), " · ",
    el("a", { href: link("key", { table: name }) }, "History of a key")));
  const part = new DocumentPart(root, { path: "/api/table", query: { name }, what: "the table", draw: (found) => draw(found, () => part.reload()) });
  return () => part.close();
}

function draw(found, reload) {
  return [
    facts([["Topic", found.topic ? code(found.topic) : null]]),
    found.left_out ? section("Not captured", whyNot(found.left_out)) : null,
    section("Snapshot", found.snapshot ? snapshotFacts(found.snapshot) : empty("The table has no snapshot."),
      snapshotActions(found.table, found.snapshot, reload)),
    found.findings?.length ? section("Open DDL findings", findingRows(found.findings, reload)) : null,
    section("Columns", found.columns?.length ? columns(found.columns) : empty("No columns are known yet.")),
    section("Schema versions", found.schemas?.length ? schemas(found.schemas) : empty("No schema version is recorded yet.")),
  ];
}

const columns = (rows) => table("Columns", [
  { head: "Column", kind: "wide", cell: (one) => code(one.name) },
  { head: "Type", kind: "wide", cell: (one) => code(one.type ?? "unknown") },
  { head: "Key", cell: (one) => (one.key ? badge("ok", "key") : "–") },
], rows);

const schemas = (rows) => table("Schema versions", [
  { head: "Since", cell: (one) => code(one.since_lsn ?? "–") },
  { head: "Schema", cell: (one) => code(one.id ?? "–") },
  { head: "Changes", kind: "wide", cell: changes },
  { head: "Columns", kind: "wide", cell: (one) => (one.columns ?? []).join(", ") },
], rows);

function changes(one) {
  const words = [["added", one.added], ["dropped", one.dropped], ["changed", one.changed]]
    .filter(([, names]) => names?.length)
    .map(([verb, names]) => `${verb} ${names.join(", ")}`);
  return words.join("; ") || "first version";
}
