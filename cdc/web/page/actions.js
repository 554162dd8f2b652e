// The recorded actions of operators. Needs the token.
import { DocumentPart } from "./document.js";
import { askToken } from "./dialogs.js";
import { el } from "./dom.js";
import { time } from "./format.js";
import { badge, button, code, empty, problem, table } from "./parts.js";
import { session, token } from "./session.js";

const LEVELS = { done: "ok", requested: "busy", refused: "warn", failed: "bad" };

export function open(root) {
  const place = el("div");
  root.append(el("p", { class: "intro" }, "Actions by this page, by cdc and over HTTP, as recorded in the log."), place);
  let part = null;
  const start = () => {
    place.replaceChildren();
    part = new DocumentPart(place, { path: "/actions", query: { limit: 100 }, what: "the actions", everyS: 10, draw });
  };
  if (token()) start();
  else if (session?.token_configured === false) place.append(empty("This server has no token (http.token), so it performs no actions. cdc actions lists those of commands."));
  else {
    place.append(empty("The list needs the token."), button("Enter token", async () => (await askToken()) && start()));
  }
  return () => part?.close();
}

function draw(found) {
  const rows = [...(found.actions ?? [])].reverse();
  return [
    found.unreadable ? problem({ message: `${found.unreadable} records cannot be read by this version.` }, "warn") : null,
    rows.length === 0 ? empty("No action is recorded yet.") : table("Actions", [
      { head: "At", cell: (one) => time(one.at) },
      { head: "Action", cell: (one) => code(one.action ?? "–") },
      { head: "On", kind: "wide", cell: on },
      { head: "Result", cell: (one) => badge(LEVELS[one.result] ?? "off", one.result ?? "unknown") },
      { head: "By", kind: "wide", cell: (one) => by(one) },
      { head: "Error", kind: "wide", cell: (one) => (typeof one.error === "object" && one.error ? one.error.message : one.error) || "–" },
    ], rows),
  ];
}

const on = (one) => Object.entries(one.arguments ?? {}).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ") || "–";

const by = (one) => [one.who, one.from && `from ${one.from}`, one.via && `(${one.via})`].filter(Boolean).join(" ") || "–";
