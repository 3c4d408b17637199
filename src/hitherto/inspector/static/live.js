// Pieces of a page that are exchanged when the server has newer ones, and times that say how long ago they were.

const shown = new Map();
let ahead = 0;

/** The clock of the server's store, in seconds. */
export const serverNow = () => Date.now() / 1000 + ahead;

/** Go by this time of the store from now on. */
export function setNow(seconds) {
  if (seconds > 0) ahead = seconds - Date.now() / 1000;
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function span(seconds) {
  const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** Write every time within `root` as people say it; the exact one stays in its title. */
export function tell(root = document) {
  for (const time of root.querySelectorAll("time[data-at]")) {
    if (!time.title) time.title = time.textContent;
    const seconds = serverNow() - Number(time.dataset.at);
    const says = seconds >= 0 ? (seconds < 1 ? "now" : `${span(seconds)} ago`) : `in ${span(-seconds)}`;
    if (time.textContent !== says) time.textContent = says;
  }
}

function selecting(element) {
  const selection = getSelection();
  return selection && !selection.isCollapsed && element.contains(selection.anchorNode);
}

/** Put newer pieces in place: a map from the part's name to HTML that the server has escaped. */
export function swap(pieces) {
  for (const [name, html] of Object.entries(pieces)) {
    const element = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (!element || shown.get(name) === html || selecting(element)) continue;
    if (shown.has(name) || element.innerHTML !== html) replace(element, html);
    shown.set(name, html);
  }
  tell();
}

function replace(element, html) {
  const focused = element.contains(document.activeElement) ? place(element, document.activeElement) : null;
  element.innerHTML = html;
  if (focused !== null) element.querySelectorAll("a, button, input, [tabindex]")[focused]?.focus();
}

function place(element, active) {
  return [...element.querySelectorAll("a, button, input, [tabindex]")].indexOf(active);
}

setInterval(tell, 1000);
