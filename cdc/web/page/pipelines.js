// The overview of all pipelines of this host: their states, and a link to the page of each one.
import { DocumentPart } from "./document.js";
import { el, replace } from "./dom.js";
import { count, duration } from "./format.js";
import { badge, problem, table } from "./parts.js";
import { startTheme } from "./theme.js";

const COLUMNS = [
  { head: "Pipeline", cell: (row) => el("a", { href: `/pipelines/${row.name}/` }, row.name) },
  { head: "State", cell: (row) => badge(row.level, row.reason ? `${row.state} (${row.reason})` : row.state) },
  { head: "Behind the source", kind: "number", cell: (row) => duration(row.lag_seconds) },
  { head: "Restarts", kind: "number", cell: (row) => count(row.restarts) },
  { head: "Process", kind: "number", cell: process },
];

function process(row) {
  if (row.pid !== null) return String(row.pid);
  if (row.next_start_seconds !== null) return `starts in ${duration(row.next_start_seconds)}`;
  return row.exit_code === null ? "-" : `ended with ${row.exit_code}`;
}

function draw(found) {
  const failed = found.pipelines.filter((row) => row.error !== null);
  return [
    table("Pipelines", COLUMNS, found.pipelines),
    failed.map((row) => problem(row.error, row.level, el("h2", {}, row.name))),
  ];
}

const body = el("div", { class: "page" });
replace(document.getElementById("main"), el("h1", { tabindex: "-1" }, "Pipelines"), body);
startTheme(document.getElementById("theme"));
new DocumentPart(body, { path: "/api/pipelines", what: "the pipelines", everyS: 2, draw });
