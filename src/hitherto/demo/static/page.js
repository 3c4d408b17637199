// The playground's page. What the server says is put into elements as text; nothing is made of markup but the
// map, which is parsed as SVG and holds no script that the content security policy would run.
"use strict";

const who = document.body.dataset.who;
const csrf = document.querySelector("meta[name=csrf]").content;
const at = (id) => document.getElementById(id);
const shown = {}; // what each part was last made of, so that only what changed is made anew
let view = null;
let events = null;

const STATUSES = {
  sending: "sending …", busy: "refused: busy. It comes again", kept: "waits in the inbox",
  running: "is being handled", failed: "failed, will be tried again", handled: "✓ handled",
  duplicate: "same id again: nothing happens", replaced: "replaced by a newer one", folded: "✓ handled with the next one",
  dropped: "given up by the policy", dead: "✕ dead letter",
};
const OVERLAPS = {
  queue: "Queue: messages wait their turn, first in, first out, at most 20.",
  reject: "Reject: refused and not marked as seen, so what the platform brings again is handled later.",
  debounce: "Debounce: only the newest of those that wait counts, after one quiet second.",
  burst: "Burst: what comes within a second is one turn; the bot answers the last.",
  concurrent: "Concurrent: everything runs at once, without a lease. Now order is your own affair.",
};

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "data") Object.assign(element.dataset, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

async function ask(what, body) {
  try {
    const answer = await fetch(what, {
      method: "POST", headers: { "Content-Type": "application/json", "X-CSRF": csrf }, body: JSON.stringify({ who, ...body }),
    });
    if (!answer.ok) says((await answer.json()).error);
  } catch {
    says("the page's server is gone; start it again and reload");
  }
}

function says(text, state = "dead") {
  at("worker").dataset.state = state;
  at("worker-says").textContent = text;
}

function when(part, value, draw) {
  const text = JSON.stringify(value);
  if (shown[part] === text) return;
  shown[part] = text;
  draw(value);
}

function drawWorker({ state, pid, deaths }) {
  const before = deaths ? `, killed ${deaths === 1 ? "once" : `${deaths} times`}` : "";
  if (state === "up") says(`worker ${pid} runs${before}`, "up");
  else if (state === "dead") says("the worker is dead; it comes back in a moment");
  else says("the worker starts", "starting");
  at("plug").disabled = state !== "up";
}

function drawMessages(messages) {
  const list = at("messages");
  const down = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  if (!messages.length && !list.children.length) {
    const back = view.version > 0;
    list.append(make("div", { className: "welcome" },
      make("strong", { textContent: back ? `Welcome back, ${who}` : `Hello, ${who}` }),
      back ? "The chat is gone with the page, the conversation is where it was."
        : "Order a pizza, then break something: nothing you do here loses it."));
  }
  if (messages.length) list.querySelector(".welcome")?.remove();
  const known = new Map([...list.querySelectorAll(".bubble")].map((one) => [one.dataset.n, one]));
  for (const one of messages) {
    let bubble = known.get(String(one.n));
    if (!bubble) {
      const drawing = !one.mine && one.text.includes("\n");
      bubble = make("div", { className: `bubble${one.mine ? " mine" : ""}${drawing ? " drawing" : ""}`, data: { n: one.n } }, one.text);
      if (one.mine) bubble.append(make("small"));
      list.append(bubble);
    }
    if (one.mine) {
      bubble.dataset.status = one.status;
      const again = one.attempt > 1 ? ` (attempt ${one.attempt})` : "";
      bubble.querySelector("small").textContent = (STATUSES[one.status] || one.status) + again;
    }
  }
  if (down) list.scrollTop = list.scrollHeight;
}

function drawSays(texts) {
  at("says").replaceChildren(...texts.map((text) =>
    make("button", { type: "button", textContent: text, onclick: () => ask("/say", { texts: [text] }) })));
}

function drawMap(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  at("map").replaceChildren(document.importNode(parsed, true));
}

function drawData(data) {
  const rows = Object.entries(data).flatMap(([key, value]) => [
    make("dt", { textContent: key }),
    make("dd", { textContent: key === "past" ? `${value.length === 1 ? "one step" : `${value.length} steps`}, for /undo` : JSON.stringify(value) }),
  ]);
  at("data").replaceChildren(...(rows.length ? rows : [make("dt", { className: "soft", textContent: "nothing is kept" }), make("dd")]));
}

function drawLease({ lease, epoch }) {
  at("epoch").textContent = epoch ? `epoch ${epoch}` : "";
  if (!lease) {
    at("lease").replaceChildren(make("p", { className: "soft", textContent: "free: nobody runs this conversation" }));
    return;
  }
  const bar = make("progress", { max: lease.length, value: 0, id: "lease-bar" });
  bar.setAttribute("aria-label", "what is left of the lease");
  const text = lease.alive ? `held by worker ${lease.owner}` : `worker ${lease.owner} is gone; somebody takes over now`;
  at("lease").replaceChildren(make("p", { textContent: text }), bar);
  drawLeft();
}

function drawLeft() {
  const bar = at("lease-bar");
  if (bar && view?.lease) bar.value = Math.max(0, view.lease.until - Date.now() / 1000);
}

function drawInbox(inbox) {
  const waiting = inbox.filter((one) => one.is !== "claimed").length;
  at("depth").textContent = inbox.length ? `${waiting} waiting` : "";
  at("inbox").replaceChildren(...(inbox.length ? inbox.map((one) =>
    make("li", { data: { seq: one.seq } }, make("span", { className: "soft", textContent: `#${one.seq}` }),
      make("span", { className: "what", textContent: one.text }),
      make("span", { className: "tag", textContent: one.attempts > 1 ? `${one.is}, attempt ${one.attempts}` : one.is, data: { is: one.is } })))
    : [make("li", { className: "soft", textContent: "empty: everything is handled" })]));
}

function drawSeen({ seen, count }) {
  at("seen-count").textContent = count ? `${count} ids` : "";
  at("seen").replaceChildren(...(seen.length ? seen.map((id) => make("li", { textContent: id }))
    : [make("li", { className: "none", textContent: "no id yet" })]));
}

function drawDead(dead) {
  at("dead-count").textContent = dead.length || "";
  at("dead").replaceChildren(...(dead.length ? dead.map((one) => {
    const act = (verb) => make("button", {
      type: "button", textContent: verb, onclick: () => ask("/dead", { seq: one.seq, id: one.id, verb: verb.toLowerCase() }),
    });
    return make("li", {}, make("span", { className: "what", textContent: one.text }),
      make("span", { className: "soft", textContent: `${one.attempts} attempts; ${one.error}` }), act("Retry"), act("Drop"));
  }) : [make("li", { className: "soft", textContent: "none: nothing was given up" })]));
}

function drawLog(log) {
  const list = at("log");
  if (!log.length) {
    list.replaceChildren(make("li", {}, make("time"), make("span", { className: "soft", textContent: "nothing yet" })));
    return;
  }
  list.replaceChildren(...log.slice().reverse().map((one) => make("li", { data: { kind: one.kind } },
    make("time", { textContent: `${new Date(one.at * 1000).toTimeString().slice(0, 8)}.${Math.floor((one.at % 1) * 10)}` }),
    make("span", {}, ...(one.text ? [make("b", { textContent: one.text }), " "] : []), one.says))));
}

function drawSettings(settings) {
  at("slow").value = String(settings.slow);
  at("trouble").value = settings.trouble;
  at("overlap").value = settings.overlap;
  at("overlap-says").textContent = OVERLAPS[settings.overlap];
}

function draw() {
  when("worker", view.worker, drawWorker);
  when("messages", view.messages, drawMessages);
  when("says", view.says, drawSays);
  when("map", view.map, drawMap);
  when("here", view.here, (here) => { at("here").textContent = here ?? ""; });
  when("data", view.data, drawData);
  when("version", view.version, (version) => { at("version").textContent = version ? `version ${version}` : ""; });
  when("lease", { lease: view.lease, epoch: view.epoch }, drawLease);
  when("inbox", view.inbox, drawInbox);
  when("seen", { seen: view.seen, count: view.seen_count }, drawSeen);
  when("dead", view.dead, drawDead);
  when("log", view.log, drawLog);
  when("settings", view.settings, drawSettings);
}

function connect() {
  events?.close();
  events = new EventSource(`/events?who=${encodeURIComponent(who)}`);
  events.onmessage = (event) => { view = JSON.parse(event.data); draw(); };
  events.onerror = () => { delete shown.worker; says("the page's server does not answer"); };
}

// a hidden tab lets go of its connection: browsers allow only six to one server
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { events?.close(); events = null; } else if (!events) connect();
});

function typed() {
  const text = at("text").value.trim();
  at("text").value = "";
  return text;
}

function set() {
  ask("/set", { settings: { slow: Number(at("slow").value), trouble: at("trouble").value, overlap: at("overlap").value } });
}

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = typed();
  if (text) ask("/say", { texts: [text] });
  at("text").focus();
});
at("twice").addEventListener("click", () => {
  const text = typed() || (view && view.says[0]);
  if (text) ask("/say", { texts: [text], twice: true });
});
at("five").addEventListener("click", () => { if (view) ask("/say", { texts: view.five }); });
at("plug").addEventListener("click", () => ask("/plug", {}));
for (const id of ["slow", "trouble", "overlap"]) at(id).addEventListener("change", set);
at("name").addEventListener("change", () => at("who").requestSubmit());
document.querySelector(".face").textContent = [...who][0].toUpperCase();
at("send").disabled = false; // until now the form would have left the page
setInterval(drawLeft, 100);
connect();
