// Keeps a page live, makes it usable by keyboard alone, and streams answers. Without it every page works, too.
// Trusted Types are on: nothing here parses HTML. The server sends trees of tags, attributes and texts.

const main = document.getElementById("main");
const connection = document.getElementById("connection");

// ---------------------------------------------------------------------------------------------------- trees to elements

function built([tag, attributes, children]) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const child of children) element.append(typeof child === "string" ? child : built(child));
  return element;
}

function replaced(old, node) {
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
  const fresh = built(node);
  if (old === main) old.replaceChildren(...fresh.childNodes);
  else old.replaceWith(fresh);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function ordered({ in: id, order, made }) {
  const parent = document.getElementById(id);
  if (!parent) return;
  const active = document.activeElement;
  const fresh = new Map(made.map((node) => [node[1].id, node]));
  const wanted = order.map((each) => (fresh.has(each) ? built(fresh.get(each)) : document.getElementById(each)));
  for (const child of [...parent.childNodes]) if (!wanted.includes(child)) child.remove();
  wanted.forEach((child, place) => {
    if (child && parent.childNodes[place] !== child) parent.insertBefore(child, parent.childNodes[place] ?? null);
  });
  if (active?.isConnected) active.focus({ preventScroll: true }); // an element that moves loses it
}

function patch(nodes) {
  for (const node of nodes) {
    if (!Array.isArray(node)) {
      ordered(node);
      continue;
    }
    const old = document.getElementById(node[1].id);
    // What somebody types in stays, until they leave it.
    if (old && !(old.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"))) {
      replaced(old, node);
    } else if (old) {
      pending.set(node[1].id, node);
    }
  }
  tick();
}

const pending = new Map();
document.addEventListener("focusout", () => {
  setTimeout(() => {
    const waiting = [...pending.values()];
    pending.clear();
    if (waiting.length) patch(waiting);
  });
});

// ----------------------------------------------------------------------------------------------------------------- ages

function age(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${Math.max(0, Math.floor(seconds))}s`;
}

function tick() {
  const now = Date.now();
  for (const each of document.querySelectorAll("time[datetime]")) {
    const text = age((now - Date.parse(each.dateTime)) / 1000);
    if (each.textContent !== text) each.textContent = text;
  }
}
setInterval(() => { if (!document.hidden) tick(); }, 1000);

// --------------------------------------------------------------------------------------------------------------- stream

let stream = null;
let lostSince = null;

function say(text) {
  connection.textContent = text;
  connection.hidden = !text;
  document.body.classList.toggle("stale", Boolean(text));
}

async function lost() {
  lostSince ??= new Date();
  say(`Connection to airunway ui lost since ${lostSince.toLocaleTimeString()}. What is below may be old.`);
  if (stream?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
  try {
    const answer = await fetch(location.href);
    if (answer.status === 403) say("This session has ended: open the link that airunway ui prints.");
    if (answer.status === 429) say("Too many pages are open and visible: close some of them.");
  } catch { /* it is still away */ }
  setTimeout(follow, 3000);
}

function follow() {
  stream?.close();
  stream = null;
  if (document.hidden || !main.hasAttribute("data-live")) return;
  const address = new URL(location.href);
  address.hash = "";
  address.searchParams.set("_v", main.dataset.version ?? "");
  stream = new EventSource(address);
  stream.onopen = () => { lostSince = null; say(""); };
  stream.onerror = lost;
  stream.addEventListener("patch", (event) => {
    const { title, patches } = JSON.parse(event.data);
    document.title = title;
    main.dataset.version = "";
    patch(patches);
    document.dispatchEvent(new CustomEvent("patched"));
  });
}
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
follow();

// ------------------------------------------------------------------------------------------------------------- keyboard

let at = -1;

function rows() {
  return [...document.querySelectorAll("a.open")];
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/" && document.getElementById("q")) {
    event.preventDefault();
    document.getElementById("q").select();
  } else if (event.key === "j" || event.key === "k") {
    const all = rows();
    const now = all.indexOf(document.activeElement);
    at = now >= 0 ? now : at;
    at = Math.min(Math.max(at + (event.key === "j" ? 1 : -1), 0), all.length - 1);
    all[at]?.focus();
  } else if (event.key === "u" && document.querySelector("a[rel=up]")) {
    document.querySelector("a[rel=up]").click();
  }
});

// ----------------------------------------------------------------------------------------------------------------- copy

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const of = document.getElementById(button.dataset.of);
  const text = button.dataset.copy || of?.value || of?.textContent || "";
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy it by hand";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

document.querySelector("#filter")?.addEventListener("change", (event) => {
  if (event.target.matches("select, input[type=checkbox]")) event.target.form.requestSubmit();
});

// ----------------------------------------------------------------------------------------------------------------- logs

const MOST_TEXT = 2_000_000;

async function read(log) {
  const answer = await fetch(log.dataset.follow);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const below = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    log.append(value);
    if (log.textContent.length > MOST_TEXT) log.textContent = log.textContent.slice(-MOST_TEXT / 2);
    if (below) log.scrollTop = log.scrollHeight;
  }
}

const log = document.querySelector("pre[data-follow]");
if (log) {
  log.scrollTop = log.scrollHeight;
  read(log);
}

// ------------------------------------------------------------------------------------------------------------------ ask

function made(tag, name, text = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  return element;
}

const asking = document.getElementById("ask");
if (asking) {
  const dialogue = document.getElementById("dialogue");
  const stop = document.getElementById("stop");
  const send = document.getElementById("send");
  const counts = document.getElementById("counts");
  const problem = document.getElementById("ask-problem");
  const history = [];

  const fail = (text) => { problem.textContent = text; problem.hidden = !text; };

  const answered = async (form, signal) => {
    const prompt = form.get("prompt");
    form.set("history", JSON.stringify(history));
    const turn = made("div", "turn model");
    const reasoning = made("pre", "reasoning");
    const text = made("pre", "text");
    dialogue.append(made("p", "turn user", prompt), turn);
    turn.append(text);
    const sent = performance.now();
    let first = 0;
    const answer = await fetch(asking.action, {
      method: "POST", body: new URLSearchParams(form), headers: { Accept: "application/x-ndjson" }, signal,
    });
    if (!answer.ok) {
      fail(answer.status === 429 ? "Too many answers are read at once: end some of them." : `HTTP ${answer.status}`);
      return;
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) take(JSON.parse(line));
    }

    function take(piece) {
      if (piece.remark) turn.before(made("p", "note", piece.remark));
      if (piece.problem) fail(piece.problem);
      if (piece.reasoning) {
        if (!reasoning.isConnected) {
          const details = made("details", "");
          details.append(made("summary", "", "Reasoning"), reasoning);
          turn.prepend(details);
        }
        reasoning.append(piece.reasoning);
      }
      if (piece.text) text.append(piece.text);
      if ((piece.text || piece.reasoning) && !first) {
        first = performance.now();
        counts.textContent = `first token after ${Math.round(first - sent)} ms`;
      }
      if (piece.end) {
        counts.textContent = piece.end.counts.join("; ");
        if (piece.end.embedding) text.append(piece.end.embedding);
        if (piece.end.ranked.length) {
          const list = made("ol", "");
          for (const each of piece.end.ranked) list.append(made("li", "", `${each.score.toFixed(4)} ${each.text}`));
          turn.append(list);
        }
        if (piece.end.task === "chat") {
          history.push({ role: "user", content: prompt }, { role: "assistant", content: text.textContent });
        }
      }
    }
  };

  asking.addEventListener("submit", async (event) => {
    event.preventDefault();
    const control = new AbortController();
    stop.onclick = () => control.abort();
    const form = new FormData(asking);
    fail("");
    send.disabled = true;
    stop.hidden = false;
    document.getElementById("prompt").value = "";
    try {
      await answered(form, control.signal);
    } catch (error) {
      fail(error.name === "AbortError" ? "The answer was stopped." : "The connection to airunway ui was lost.");
    }
    send.disabled = false;
    stop.hidden = true;
    document.getElementById("prompt").focus();
  });
  document.getElementById("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!send.disabled) asking.requestSubmit();
    }
  });
}

// ---------------------------------------------------------------------------------------------------------------- draft

const draft = document.getElementById("draft");
if (draft) {
  const yaml = document.getElementById("yaml");
  const checks = document.getElementById("checks");
  const checking = document.getElementById("checking");
  const fields = [...draft.querySelectorAll("[name^='f-']")];
  let running = null;
  let waiting = 0;

  async function examine(source) {
    running?.abort();
    const control = new AbortController();
    running = control;
    const form = new URLSearchParams(new FormData(draft));
    form.set("source", source);
    checking.textContent = "Checking…";
    try {
      const answer = await fetch("/check", {
        method: "POST", body: form, headers: { Accept: "application/json" }, signal: control.signal,
      });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      const found = await answer.json();
      if (running !== control) return;
      if (source === "form" && !("yaml" in found.errors)) yaml.value = found.yaml;
      for (const each of fields) {
        const name = each.name.slice(2);
        if (source === "yaml" && !("yaml" in found.errors)) each.value = found.fields[name] ?? "";
        show(name, found.errors[name] ?? "");
      }
      show("yaml", found.errors.yaml ?? "");
      const fresh = document.createDocumentFragment();
      for (const node of found.checks) fresh.append(typeof node === "string" ? node : built(node));
      checks.replaceChildren(fresh);
      checking.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") checking.textContent = `It could not be checked: ${error.message}`;
    }
  }

  function show(name, text) {
    const place = document.getElementById(`e-${name}`);
    if (!place) return;
    place.textContent = text;
    place.closest("label")?.classList.toggle("wrong", Boolean(text));
  }

  draft.addEventListener("input", (event) => {
    clearTimeout(waiting);
    const source = event.target === yaml ? "yaml" : "form";
    waiting = setTimeout(() => examine(source), 500);
  });
  for (const each of draft.querySelectorAll("button[formaction='/check']")) {
    each.addEventListener("click", (event) => {
      event.preventDefault();
      examine(each.value);
    });
  }
  if (document.getElementById("f-name").value) examine("yaml");
}
