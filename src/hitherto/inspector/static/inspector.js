// What the pages do beyond plain links and forms, all of which work without this file.

import { setNow, swap, tell } from "./live.js";

const EVERY = 1500;
const revealed = new Set(params().get("reveal")?.split(",").filter(Boolean));
const live = document.getElementById("live");
let pause = EVERY;
let timer = null;

function params() {
  return new URL(location.href).searchParams;
}

// ------------------------------------------------------------------------------------------------ live

function address() {
  const url = new URL(location.href);
  url.searchParams.delete("said");
  url.searchParams.set("pieces", "1");
  if (revealed.size) url.searchParams.set("reveal", [...revealed].sort().join(","));
  else url.searchParams.delete("reveal");
  return url;
}

async function refresh() {
  clearTimeout(timer);
  try {
    const began = performance.now();
    const answer = await fetch(address(), { headers: { accept: "application/json" } });
    if (answer.ok) {
      const { now, pieces } = await answer.json();
      setNow(now);
      swap(pieces);
      say("live");
      // a slow store is asked less often
      pause = Math.max(EVERY, 5 * (performance.now() - began));
    } else {
      say(answer.status === 401 ? "signed out: open the link again" : `no answer (${answer.status})`);
      pause = Math.min(2 * pause, 30000);
    }
  } catch {
    say("not connected");
    pause = Math.min(2 * pause, 30000);
  }
  later();
}

function later() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(refresh, pause);
}

function say(what) {
  document.body.dataset.state = what === "live" ? "live" : "away";
  if (live.textContent !== what) live.textContent = what;
}

// ---------------------------------------------------------------------------------------------- reveal

function reveal(link) {
  const what = link.dataset.reveal;
  if (!revealed.delete(what)) revealed.add(what);
  refresh();
}

// ------------------------------------------------------------------------------------------ actions, once

const dialog = document.createElement("dialog");
dialog.setAttribute("aria-labelledby", "asking");
document.body.append(dialog);
let opener = null;
dialog.addEventListener("close", () => {
  dialog.replaceChildren();
  if (opener?.isConnected) opener.focus();
});

function fill(html) {
  const main = new DOMParser().parseFromString(html, "text/html").querySelector("main");
  if (!main) return false;
  const title = main.querySelector("h1");
  if (title) title.id = "asking";
  dialog.replaceChildren(...main.childNodes);
  tell(dialog);
  return true;
}

async function ask(link) {
  const answer = await fetch(link.href);
  if (!answer.ok || !fill(await answer.text())) return void (location.href = link.href);
  opener = link;
  dialog.showModal();
  (dialog.querySelector("textarea, select, input:not([type=hidden])") ?? dialog.querySelector(".cancel"))?.focus();
}

async function act(form, button) {
  button.disabled = true;
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  if (answer.redirected) {
    const there = new URL(answer.url);
    if (there.pathname === location.pathname && there.searchParams.get("key") === params().get("key")) {
      dialog.close();
      note(await answer.text());
      await refresh();
    } else location.href = answer.url;
  } else {
    fill(await answer.text());
    dialog.querySelector(".error")?.scrollIntoView();
  }
}

function note(html) {
  const said = new DOMParser().parseFromString(html, "text/html").querySelector(".said");
  document.querySelector(".said")?.remove();
  if (said) document.querySelector("main h1").closest(".title, h1").after(said);
}

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const link = event.target.closest("a");
  if (link?.matches(".reveal")) reveal(link);
  else if (link?.matches(".act")) ask(link);
  else if (link?.matches("dialog .cancel")) dialog.close();
  else return;
  event.preventDefault();
});

document.addEventListener("submit", (event) => {
  if (!event.target.matches("dialog form")) return;
  event.preventDefault();
  act(event.target, event.submitter ?? event.target.querySelector("button"));
});

tell();
if (document.body.dataset.live !== undefined) {
  setNow(Number(document.body.dataset.now));
  tell();
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  say("live");
  pause = 400; // the first counts may be there by then
  later();
}
