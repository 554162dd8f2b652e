// Alarms with their runbooks, and the diagnosis.
import { read } from "./api.js";
import { DocumentPart } from "./document.js";
import { el, replace } from "./dom.js";
import { count, time } from "./format.js";
import { badge, button, command, empty, problem, runbook, section } from "./parts.js";

export function open(root) {
  const stop = new AbortController();
  const part = new DocumentPart(root, {
    path: "/api/alarms", what: "the alarms", everyS: 5,
    draw: (found) => (found.alarms?.length
      ? el("ul", { class: "plain alarms" }, found.alarms.map(alarm))
      : empty("No alarms.")),
  });
  const found = el("div");
  const ask = button("Find the cause", () => diagnose(found, ask, stop.signal));
  root.append(section("Diagnosis", el("p", {}, "Checks every part and names the causes of problems. It takes up to ten seconds."), ask, found));
  return () => {
    stop.abort();
    part.close();
  };
}

const alarm = (one) => el("li", { class: "card" },
  el("div", { class: "card-head" }, el("h2", {}, one.what), badge(one.level, { bad: "act now", warn: "warning" }[one.level] ?? "note")),
  el("p", {}, one.says ?? ""), one.hint ? el("p", { class: "hint" }, one.hint) : null, command(one.command),
  one.runbook ? el("p", {}, runbook(one.runbook)) : null);

async function diagnose(root, ask, signal) {
  ask.disabled = true;
  replace(root, el("p", { role: "status" }, "Checking ..."));
  try {
    const found = await read("/api/why", {}, signal);
    replace(root, diagnosis(found));
  } catch (error) {
    if (signal.aborted) return;
    const message = error.status === 404 ? "This server has no diagnosis." : `The diagnosis failed: ${error.message}`;
    replace(root, problem({ message, hint: error.hint || (error.status === 404 ? "run cdc status and cdc doctor instead" : ""), command: error.command }));
  }
  ask.disabled = false;
}

function diagnosis(found) {
  const unread = Object.entries(found.unread ?? {});
  return el("div", { role: "status" },
    el("p", { class: "as-of" }, `As of ${time(new Date())}, ${count((found.checked ?? []).length)} checks`),
    found.healthy ? el("p", {}, badge("ok", "healthy")) : null,
    (found.causes ?? []).map((one) => el("div", { class: "card" },
      el("div", { class: "card-head" }, el("h3", {}, one.part ?? one.code), one.page ? runbook(one.page) : null),
      problem({ message: one.says, hint: one.hint, command: one.command }),
      one.evidence?.length ? el("ul", { class: "evidence" }, one.evidence.map((line) => el("li", {}, String(line)))) : null)),
    unread.map(([part, why]) => problem({ message: `Not checked: ${part}: ${why}` }, "warn")));
}
