// Keyboard shortcuts.
import { el } from "./dom.js";
import { show } from "./dialogs.js";
import { PAGES } from "./pages.js";
import { go } from "./router.js";

const CHORD_MS = 1500;
let pressedG = 0;

export function startKeys(helpButton) {
  helpButton.addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (pressed(event.key)) event.preventDefault();
  });
}

function pressed(key) {
  const chord = Date.now() - pressedG < CHORD_MS;
  pressedG = 0;
  if (chord) {
    const page = PAGES.find((one) => one.key === key);
    if (page !== undefined) {
      go(page.path);
      return true;
    }
  }
  if (key === "g") pressedG = Date.now();
  else if (key === "?") help();
  else if (key === "/") document.querySelector("main input[type=search]")?.focus();
  else return false;
  return key !== "g";
}

function help() {
  const rows = [
    ["/", "search"], ["?", "these keys"], ["Esc", "close a dialog, leave a field"],
    ...PAGES.filter((page) => page.key).map((page) => [`g ${page.key}`, page.name]),
  ];
  show("Keyboard shortcuts", (close) => [
    el("dl", { class: "keys" }, rows.map(([keys, words]) => el("div", {},
      el("dt", {}, keys.split(" ").map((key) => [el("kbd", {}, key), " "])), el("dd", {}, words)))),
    el("div", { class: "buttons" }, el("button", { type: "button", on: { click: () => close() } }, "Close")),
  ]);
}
