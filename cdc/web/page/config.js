// The configuration, with secrets masked by the server, and the log level.
import { confirmAction } from "./dialogs.js";
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { button, code, empty, facts, field, problem, table } from "./parts.js";
import { amend } from "./router.js";
import { canAct } from "./session.js";

const ORIGINS = { file: "cdc.toml", environment: "environment", default: "default" };

export function open(root, query) {
  const search = el("input", { type: "search", value: query.search ?? "", placeholder: "Search", spellcheck: "false" });
  let newest = null;
  const list = el("div");
  const draw = () => {
    const words = search.value.trim().toLowerCase();
    const rows = (newest?.settings ?? []).filter((one) => `${one.key} ${one.value}`.toLowerCase().includes(words));
    list.replaceChildren(rows.length ? settings(rows) : empty("No settings match."));
    return list;
  };
  search.addEventListener("input", () => {
    amend("config", { search: search.value.trim() });
    if (newest !== null) draw();
  });
  root.append(el("form", { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } }, field("Search settings", search), canAct() ? button("Log level", logLevel) : null));
  const part = new DocumentPart(root, {
    path: "/api/config", what: "the configuration", everyS: 0,
    draw: (found) => {
      newest = found;
      const file = facts([["File", found.file ? code(found.file) : "none; settings come from the environment"]]);
      return [file, pending(found.pending ?? {}, () => part.reload()), draw()];
    },
  });
  return () => part.close();
}

/** What the file and the environment say now, and the process does not use yet. */
function pending(found, reload) {
  if (found.error) return problem({ message: `The file has changed and is not valid: ${found.error}`, command: "cdc config check" }, "warn");
  const names = (keys) => keys.flatMap((key, at) => [at ? ", " : "", code(key)]);
  const changed = found.reload ?? [];
  const lines = [
    changed.length ? el("p", {}, "A reload applies ", ...names(changed), ". ", canAct() ? button("Reload", () => reloadConfig(reload)) : null) : null,
    found.restart?.length ? el("p", {}, "A restart applies ", ...names(found.restart), ".") : null,
  ];
  return lines.some(Boolean) ? el("div", { class: "problem warn" }, el("p", { class: "says" }, "The configuration has changed."), ...lines) : null;
}

async function reloadConfig(reload) {
  const says = "Capture reads its file and environment again, and takes over what can change while it runs.";
  if (await confirmAction({ heading: "Reload the configuration", verb: "Reload", says, body: () => ({ action: "config.reload" }) })) reload();
}

const settings = (rows) => table("Settings", [
  { head: "Setting", kind: "wide", cell: (one) => code(one.key) },
  { head: "Value", kind: "wide", cell: (one) => code(typeof one.value === "string" ? one.value : JSON.stringify(one.value)) },
  { head: "From", cell: (one) => ORIGINS[one.origin] ?? one.origin ?? "–" },
], rows);

function logLevel() {
  const level = el("select", {}, ["debug", "info", "warning"].map((value) => el("option", { value, selected: value === "info" }, value)));
  return confirmAction({
    heading: "Log level", verb: "Set", fields: [field("Level", level)],
    says: "Sets the level of the log of capture until its process ends.",
    body: () => ({ action: "log.level", level: level.value }),
  });
}
