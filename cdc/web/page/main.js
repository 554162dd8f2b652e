// Starts the page: header, navigation, the stream, and the shown page.
import { askToken, checkSession } from "./dialogs.js";
import { announce, el, replace, setText } from "./dom.js";
import { time } from "./format.js";
import { startKeys } from "./keys.js";
import { PAGES, pageAt } from "./pages.js";
import { badge, problem } from "./parts.js";
import { startSwitch } from "./pipeline_switch.js";
import { link, parse } from "./router.js";
import { onSession, session, setSession, setToken, token } from "./session.js";
import { isSilent, onPicture, picture, receivedAt, silentSeconds, startStream } from "./stream.js";
import { startTheme } from "./theme.js";
import { checkVersion, isOutdated } from "./update.js";

const byId = (id) => document.getElementById(id);
let closePage = null;
let opened = 0;
let lastState = "";

async function showPage() {
  const { path, query } = parse(location.hash);
  const page = pageAt(path);
  const turn = (opened += 1);
  if (turn > 1 && isOutdated() && !isSilent()) {
    location.reload(); // its parts are loaded when they are needed, and would be those of the new version
    return;
  }
  closePage?.();
  closePage = null;
  mark(page?.parent ?? path);
  const main = byId("main");
  const heading = el("h1", { tabindex: "-1" }, page?.name ?? "Unknown page");
  const body = el("div", { class: `page page-${page === null ? "unknown" : path || "overview"}` });
  replace(main, heading, body);
  setTitle(page?.name ?? "Unknown page");
  window.scrollTo(0, 0);
  if (turn > 1) heading.focus({ preventScroll: true });
  if (page === null) {
    body.append(el("p", {}, "There is no such page. ", el("a", { href: "#/" }, "Go to the overview")));
    return;
  }
  try {
    const module = await page.load();
    if (turn === opened) closePage = module.open(body, query, heading);
  } catch (error) {
    if (turn === opened) replace(body, problem({ message: `The page cannot be shown: ${error.message}`, hint: "reload it" }));
    throw error;
  }
}

function setTitle(name) {
  const pipeline = picture?.name ?? session?.name;
  document.title = pipeline ? `${name} · ${pipeline} · Tailrace` : `${name} · Tailrace`;
}

function drawNavigation() {
  const items = PAGES.filter((page) => page.key).map((page) => el("li", {},
    el("a", { href: link(page.path), data: { path: page.path } }, page.name, el("span", { class: "nav-count" }))));
  items.push(el("li", {}, el("a", { href: "/docs/index.md", target: "_blank" }, "Documentation")));
  replace(byId("nav"), el("ul", {}, items));
}

function mark(path) {
  for (const one of document.querySelectorAll("#nav a")) {
    if (one.dataset.path === path) {
      one.setAttribute("aria-current", "page");
      // On a phone the navigation scrolls sideways.
      one.parentElement.parentElement.scrollTo({ left: one.offsetLeft - 40 });
    } else one.removeAttribute("aria-current");
  }
}

function countIn(path, number, words) {
  const place = document.querySelector(`#nav a[data-path="${path}"] .nav-count`);
  if (!number) return replace(place);
  return replace(place, String(number), el("span", { class: "hidden-text" }, ` ${words}`));
}

function drawHeader(found) {
  if (found === null) {
    drawNotice();
    return;
  }
  checkVersion(found);
  setText(byId("pipeline"), found.name);
  setText(byId("clock"), time(found.at));
  countIn("findings", found.counts?.ddl, "open");
  countIn("dead-letters", found.counts?.blocked_keys, "blocked keys");
  countIn("tables", found.counts?.left_out, "not captured");
  const state = `${found.state} ${found.level}`;
  if (state !== lastState) {
    replace(byId("state"), badge(found.level, found.state));
    if (lastState !== "") announce(`${found.name}: ${found.state}`);
    lastState = state;
    setTitle(byId("main").querySelector("h1")?.textContent ?? "");
  }
  drawNotice();
}

/** Say that what is shown is old, for as long as it is. */
function drawNotice() {
  const notice = byId("notice");
  const silent = isSilent();
  document.body.classList.toggle("silent", silent);
  if (!silent) {
    if (!notice.hidden) announce("The connection is back");
    notice.hidden = true;
    return;
  }
  const words = receivedAt() === 0
    ? `No data from the server for ${silentSeconds()} s`
    : `Connection lost: no data from the server for ${silentSeconds()} s. The page shows the state of ${time(picture.at)}`;
  if (notice.hidden) announce(words);
  notice.hidden = false;
  setText(notice, words);
}

function drawToken() {
  const words = !session || session.token_configured ? (token() ? "Forget token" : "Enter token") : "Read-only";
  setText(byId("token"), words);
}

async function pressToken() {
  if (token() && session?.token_configured !== false) {
    setToken("");
    setSession({ ...session, token: "none" });
    announce("The token is forgotten");
    await showPage();
  } else if (await askToken()) {
    await showPage();
  }
}

drawNavigation();
startTheme(byId("theme"));
startKeys(byId("help"));
byId("token").addEventListener("click", pressToken);
onSession(drawToken);
onPicture(drawHeader);
setInterval(() => isSilent() && drawNotice(), 1000);
window.addEventListener("hashchange", showPage);
// Not a page: the address of the skip link must leave the shown page alone.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
startStream();
startSwitch(byId("pipelines"));
drawToken();
showPage();
checkSession().catch(() => setTimeout(() => checkSession().catch(() => {}), 5000));
