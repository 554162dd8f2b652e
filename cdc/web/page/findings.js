// DDL findings: changes of tables that need a decision.
import { confirmAction } from "./dialogs.js";
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { button, code, command, empty, table } from "./parts.js";
import { canAct } from "./session.js";
import { patternFor, tableLink } from "./snapshots.js";

export function open(root) {
  const part = new DocumentPart(root, {
    path: "/api/findings", what: "the DDL findings", everyS: 5,
    draw: (found) => (found.findings?.length ? findingRows(found.findings, () => part.reload()) : empty("No open DDL findings.")),
  });
  return () => part.close();
}

export function findingRows(rows, reload) {
  const columns = [
    { head: "Table", kind: "wide", cell: (one) => tableLink(one.table) },
    { head: "Kind", cell: (one) => one.kind ?? "–" },
    { head: "Finding", kind: "wide", cell: (one) => el("div", {}, el("p", {}, one.what ?? ""),
      one.hint ? el("p", { class: "hint" }, one.hint) : null, command(one.command)) },
    { head: "Since", cell: (one) => code(one.since_lsn ?? one.lsn ?? "–") },
  ];
  if (canAct()) columns.push({ head: "Actions", cell: (one) => button("Accept", () => accept(one, reload), { key: `accept ${one.table} ${one.kind}` }) });
  return table("DDL findings", columns, rows);
}

async function accept(one, reload) {
  const performed = await confirmAction({
    heading: `Accept findings of ${one.table}`, verb: "Accept",
    says: "Accepts every open finding of this table. Accept a finding after you have checked its consumers.",
    body: () => ({ action: "ddl.accept", tables: [patternFor(one.table)] }),
  });
  if (performed) reload();
}
