// Notices that a server of another version answers: the files of an open page are those of the version it began with.
import { announce, el, replace } from "./dom.js";

const UNNAMED = "another version"; // a release whose picture has no version
let ours = null;
let theirs = null;

/** Whether the server now has another version than the files of this page. */
export const isOutdated = () => theirs !== ours;

/** Compare the version in a picture, and show the notice while it is another one. */
export function checkVersion(found) {
  const version = found.version ?? UNNAMED;
  ours ??= version;
  theirs ??= ours;
  if (version === theirs) return;
  theirs = version;
  draw();
}

function draw() {
  const notice = document.getElementById("update");
  notice.hidden = !isOutdated();
  if (notice.hidden) return;
  const words = `The server now runs ${named(theirs)}. This page is from ${named(ours)}: it may show wrong or missing data.`;
  replace(notice, el("span", {}, words), el("button", { type: "button", on: { click: () => location.reload() } }, "Reload"));
  announce(words);
}

const named = (version) => (version === UNNAMED ? version : `Tailrace ${version}`);
