// Topics of the pipeline.
import { el } from "./dom.js";
import { count } from "./format.js";
import { badge, code, table } from "./parts.js";
import { listPage } from "./list_page.js";
import { tableLink } from "./snapshots.js";

const KINDS = { table: "table", view: "view", outbox: "outbox", own: "Tailrace's own" };

export const open = (root, query) => listPage(root, query, {
  path: "topics", what: "topics", draw, nothing: "No topics yet. Capture creates them at its start.",
});

const draw = (rows) => table("Topics", [
  { head: "Topic", kind: "wide", cell: (one) => code(one.topic) },
  { head: "Holds", cell: (one) => KINDS[one.what] ?? one.what ?? "–" },
  { head: "Table", kind: "wide", cell: (one) => (one.table ? tableLink(one.table) : "–") },
  { head: "Partitions", kind: "number", cell: partitions },
  { head: "Records (at most)", kind: "number", cell: (one) => count(one.records) },
  { head: "Cleanup policy", cell: (one) => one.cleanup_policy ?? "–" },
], rows);

const partitions = (one) => (one.offline
  ? el("span", {}, count(one.partitions), " ", badge("bad", `${one.offline} offline`))
  : count(one.partitions));
