// What all of the page uses: elements, tabs, and frames.

/** The element of this id, which is in index.html. */
export const byId = (id) => document.getElementById(id);

/** A new element: properties are set as they are, `dataset`, `aria` and `class` as they are called; null is left out. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("aria-") || name === "role" || name === "for") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Tabs as the ARIA practices have them: arrows move, one is in the order of focus. Returns what shows one by its id. */
export function tabs(list, onShow = () => {}) {
  const all = [...list.querySelectorAll('[role="tab"]')];
  const show = (id, focus = false) => {
    for (const tab of all) {
      const chosen = tab.id === id;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !chosen;
      if (chosen && focus) tab.focus();
    }
    onShow(id);
  };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) show(tab.id);
  });
  list.addEventListener("keydown", (event) => {
    const open = all.filter((tab) => !tab.hidden);
    const at = open.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: open.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    show(open[(to + open.length) % open.length].id, true);
  });
  return show;
}

const BUDGET_MS = 8;

/**
 * Work that is done a part in each frame, so that none keeps the page from answering: `step` does a little of it and
 * says whether there is more, `paint` shows what has been done. Returns what asks for it.
 */
export function inFrames(step, paint) {
  let asked = false;
  const frame = () => {
    asked = false;
    const end = performance.now() + BUDGET_MS;
    let more = step();
    while (more && performance.now() < end) more = step();
    if (paint() || more) ask();
  };
  function ask() {
    if (asked) return;
    asked = true;
    // A page that is not seen has no frames.
    if (document.hidden) setTimeout(frame, 50);
    else requestAnimationFrame(frame);
  }
  return ask;
}

/** Seconds, or milliseconds where it is less than one. */
export const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`);

/** Bytes, as people say them. */
export const sizeOf = (bytes) => (bytes < 1024 ? `${bytes} bytes` : bytes < 1 << 20 ? `${Math.round(bytes / 1024)} KiB` : `${(bytes / (1 << 20)).toFixed(1).replace(".0", "")} MiB`);

/** The value at a path as `parameters.temperature`. */
export const valueAt = (body, path) => path.split(".").reduce((inner, name) => inner?.[name], body);

/** Puts a value there, making the objects on the way; undefined takes it away, and objects that are empty then. */
export function putAt(body, path, value) {
  const [name, ...rest] = path.split(".");
  if (rest.length === 0) {
    if (value === undefined) delete body[name];
    else body[name] = value;
    return;
  }
  const inner = body[name];
  if (inner === null || typeof inner !== "object") {
    if (value === undefined) return;
    body[name] = {};
  }
  putAt(body[name], rest.join("."), value);
  if (value === undefined && Object.keys(body[name]).length === 0) delete body[name];
}

/** The paths and values of what a switch sets. */
export function* settingsOf(added, before = "") {
  for (const [name, value] of Object.entries(added)) {
    const inner = value !== null && typeof value === "object" && !Array.isArray(value);
    if (inner) yield* settingsOf(value, `${before}${name}.`);
    else yield [`${before}${name}`, value];
  }
}
