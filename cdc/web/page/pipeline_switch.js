// Links the page of one pipeline to those of the others, if the process runs several.
import { read } from "./api.js";
import { el, replace } from "./dom.js";

const HERE = /^\/pipelines\/([a-z][a-z0-9_]*)\/$/;

/** Draw a choice of the pipelines in `place`; nothing if this server has only one. */
export async function startSwitch(place) {
  const here = HERE.exec(location.pathname);
  if (here === null) return;
  const [, name] = here;
  const link = el("a", { href: "/" }, "All pipelines");
  replace(place, link);
  place.hidden = false;
  let names;
  try {
    names = (await read("../../api/pipelines")).pipelines.map((one) => one.name);
  } catch {
    return; // the link remains
  }
  const choice = el("select", { "aria-label": "Pipeline" }, names.map((one) => el("option", { value: one }, one)));
  choice.value = name;
  choice.addEventListener("change", () => location.assign(`/pipelines/${choice.value}/${location.hash}`));
  replace(place, link, choice);
}
