// Builds elements. Data becomes text only; nothing here or elsewhere parses markup.
const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an element. `attributes`: `class`, `on` (event -> listener), `data` (dataset), and attributes by name; those
 * that are null, undefined or false are left out. `children`: nodes, texts, numbers; null and false are left out.
 */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Return an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (key === "data") {
      Object.assign(node.dataset, value);
    } else if (/^(on|style|srcdoc)/i.test(key)) {
      throw new Error(`attribute ${key} is not allowed`);
    } else if (key === "href" && !/^[#/]/.test(value)) {
      throw new Error("links go to this server only");
    } else {
      node.setAttribute(key, value === true ? "" : String(value));
    }
  }
  add(node, children);
  return node;
}

/** Append children as `el` does. */
export function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Replace the children of a node. */
export function replace(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

/** Set a node's text, unless it has it already: so selections and live regions are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Have a screen reader say `text`. For changes of state only. */
export function announce(text) {
  const region = document.getElementById("announce");
  region.textContent = "";
  region.textContent = text;
}
