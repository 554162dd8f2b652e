// Dialogs: the token, and the confirmation of an action with its result.
import { act, read, RequestFailed } from "./api.js";
import { add, announce, el, replace } from "./dom.js";
import { field, problem } from "./parts.js";
import { session, setSession, setToken, token } from "./session.js";

let number = 0;

/** Show a dialog. Escape closes it. `build(close)` -> nodes. Returns a promise of what `close` was called with. */
export function show(heading, build) {
  const id = `dialog-${(number += 1)}`;
  const dialog = el("dialog", { "aria-labelledby": id }, el("h2", { id }, heading));
  return new Promise((done) => {
    let result = null;
    const close = (value) => {
      result = value ?? null;
      dialog.close();
    };
    add(dialog, [build(close)]);
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Read who we are for the server. Raises RequestFailed. */
export async function checkSession() {
  setSession(await read("/api/session"));
  if (session.token === "wrong" && token()) setToken("");
  return session;
}

/** Ask for the token. Returns whether a valid one is held afterwards. */
export async function askToken(why = "") {
  if (session?.token_configured === false) return readOnly();
  return (await show("Token", (close) => {
    const input = el("input", { type: "password", autocomplete: "off", required: true, name: "token", spellcheck: "false" });
    const failure = el("div", { role: "alert" });
    const form = el("form", { method: "dialog" },
      el("p", {}, why || "Actions and values of rows need the token of the setting http.token."),
      el("p", { class: "hint" }, "This tab keeps it until it is closed."),
      field("Token", input), failure,
      el("div", { class: "buttons" },
        el("button", { type: "button", on: { click: () => close(false) } }, "Cancel"),
        el("button", { type: "submit", class: "main-button" }, "Use token")));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const before = token();
      setToken(input.value.trim());
      try {
        await checkSession();
        if (session.token === "valid") {
          close(true);
          return;
        }
        replace(failure, problem({ message: "The token does not match http.token." }));
      } catch (error) {
        setToken(before);
        replace(failure, problem(error));
      }
      input.select();
    });
    return form;
  })) === true;
}

async function readOnly() {
  await show("Read-only", (close) => [
    el("p", {}, "This server has no token, so the page cannot act and shows no values of rows."),
    el("p", {}, "Set ", el("code", {}, "http.token"), " in cdc.toml, or the environment variable ",
      el("code", {}, "TAILRACE_HTTP_TOKEN"), ", and restart capture."),
    el("div", { class: "buttons" }, el("button", { type: "button", on: { click: () => close() } }, "Close")),
  ]);
  return false;
}

/**
 * Ask for confirmation, perform an action and show its result. `fields`: further controls; `body()` -> the request.
 * Returns whether it was performed.
 */
export async function confirmAction({ heading, says, verb, danger = false, fields = [], body }) {
  if (!token() && !(await askToken(`${heading}: actions need the token of the setting http.token.`))) return false;
  return (await show(heading, (close) => {
    const outcome = el("div", { role: "status" });
    const cancel = el("button", { type: "button", on: { click: () => close(false) } }, "Cancel");
    const perform = el("button", { type: "submit", class: danger ? "main-button danger" : "main-button" }, verb);
    const form = el("form", { method: "dialog" },
      el("p", {}, says), fields, outcome, el("div", { class: "buttons" }, cancel, perform));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      perform.disabled = true;
      replace(outcome, el("p", {}, "Working ..."));
      try {
        const found = await act(body());
        replace(outcome, result(found));
        announce(`${heading}: ${found.result}`);
        perform.remove();
        replace(cancel, "Close");
        cancel.onclick = () => close(true);
        cancel.focus();
      } catch (error) {
        perform.disabled = false;
        replace(outcome, failed(error));
      }
    });
    return form;
  })) === true;
}

function failed(error) {
  if (!(error instanceof RequestFailed)) throw error;
  if (error.status !== 401) return problem(error);
  setToken("");
  return problem({ message: error.message, hint: "close this dialog and enter the token again" });
}

function result(found) {
  const words = found.result === "done" ? "Done." : "Requested. Capture or the sink carries it out when it runs.";
  const known = Object.entries(found.facts ?? {}).map(([name, value]) => (
    el("li", {}, `${name.replaceAll("_", " ")}: ${typeof value === "string" ? value : JSON.stringify(value)}`)));
  return [
    el("p", { class: "says" }, words),
    known.length ? el("ul", {}, known) : null,
    found.warning ? problem({ message: `The action is not recorded: ${found.warning}` }, "warn") : null,
  ];
}
