"use strict";
// Keeps parts of a page current, counts ages on, copies commands, asks before forms are sent, and knows keys.
// Pages are whole without it: then they only stand still.

(() => {
  const PAUSE_MS = 2000;
  const PAUSE_MAX_MS = 8000;
  const REST = 4; // A page that takes long to draw keeps the server busy for a fifth of the time at most.

  // -- parts that stay current: what the server drew anew takes the place of what it drew before -----------

  const isTyping = (element) => element && element.matches("input, textarea, select");

  function isInUse(part) {
    if (isTyping(document.activeElement) && part.contains(document.activeElement)) return true;
    for (const field of part.querySelectorAll("input, textarea, select")) {
      if (field.type === "hidden") continue;
      if (field.type === "checkbox" || field.type === "radio") {
        if (field.checked !== field.defaultChecked) return true;
      } else if (field.tagName === "SELECT") {
        for (const option of field.options) if (option.selected !== option.defaultSelected && field.dataset.touched) return true;
      } else if (field.value !== field.defaultValue) return true;
    }
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  function replaceContent(part, markup) {
    const open = new Map();
    for (const one of part.querySelectorAll("details[id]")) open.set(one.id, one.open);
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = new Map();
    for (const one of part.querySelectorAll("[id]")) {
      if (one.scrollTop || one.scrollLeft) scrolled.set(one.id, [one.scrollTop, one.scrollLeft]);
    }
    const made = document.createElement("template");
    made.innerHTML = markup; // Made by the server, where all that was said is escaped; the policy runs no script in it.
    part.replaceChildren(made.content);
    for (const one of part.querySelectorAll("details[id]")) if (open.has(one.id)) one.open = open.get(one.id);
    for (const [id, [top, left]] of scrolled) {
      const one = document.getElementById(id);
      if (one) one.scrollTo(left, top);
    }
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    showAges(part);
    part.dispatchEvent(new CustomEvent("holdfast:fresh", { bubbles: true }));
  }

  function tell(said) {
    const place = document.getElementById("connection");
    if (place && place.textContent !== said) place.textContent = said;
  }

  async function refresh(part) {
    const headers = { "If-None-Match": part.dataset.etag || "" };
    let answer;
    try {
      answer = await fetch(part.dataset.live, { headers, cache: "no-store", redirect: "error" });
    } catch {
      tell("The viewer cannot be reached: this page stands still.");
      return false;
    }
    if (answer.status === 304) {
      tell("");
      return false;
    }
    if (!answer.ok) {
      tell(answer.status === 403 ? "The viewer was started again: open its new address." : `This page stands still: error ${answer.status}.`);
      return false;
    }
    const markup = await answer.text();
    tell("");
    if (isInUse(part)) return false;
    part.dataset.etag = answer.headers.get("ETag") || "";
    replaceContent(part, markup);
    return true;
  }

  function follow(part) {
    let pause = PAUSE_MS;
    let timer = 0;
    let took = 0;
    const again = () => {
      timer = setTimeout(run, Math.max(pause, REST * took));
    };
    async function run() {
      if (!part.isConnected) return;
      const began = performance.now();
      if (document.hidden || isInUse(part)) pause = PAUSE_MS;
      else pause = (await refresh(part)) ? PAUSE_MS : Math.min(pause * 1.3, PAUSE_MAX_MS);
      took = performance.now() - began;
      again();
    }
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return;
      clearTimeout(timer);
      pause = PAUSE_MS;
      run();
    });
    again();
  }

  // -- times ------------------------------------------------------------------------------------------------

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

  function ageOf(at, now) {
    const s = Math.max(0, (now - at) / 1000);
    for (const [unit, length] of UNITS) if (s >= length) return `${Math.round(s / length)} ${unit} ago`;
    return `${Math.round(s)} s ago`;
  }

  function showAges(place) {
    const now = Date.now();
    for (const one of place.querySelectorAll("time[data-age]")) {
      const at = Date.parse(one.dateTime);
      if (Number.isNaN(at)) continue;
      const said = ageOf(at, now);
      if (one.textContent !== said) one.textContent = said;
      if (!one.title) one.title = new Date(at).toLocaleString();
    }
  }

  // -- copying, forms ---------------------------------------------------------------------------------------

  async function copy(button) {
    let said = "copied";
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      // Only a page of this machine, or one over TLS, may write the clipboard: select the text instead.
      const code = button.parentElement.querySelector("code");
      if (code) document.getSelection().selectAllChildren(code);
      said = "selected";
    }
    const before = button.textContent;
    button.textContent = said;
    setTimeout(() => (button.textContent = before), 1500);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    const opener = event.target.closest("[data-dialog]");
    if (opener) document.getElementById(opener.dataset.dialog)?.showModal();
  });

  document.addEventListener("change", (event) => {
    if (event.target.tagName === "SELECT") event.target.dataset.touched = "1";
    if (event.target.form?.hasAttribute("data-at-once")) event.target.form.requestSubmit();
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const question = event.submitter?.dataset.confirm || form.dataset.confirm;
    if (question && !window.confirm(question)) {
      event.preventDefault();
      return;
    }
    if (form.method !== "post") return;
    if (form.dataset.sent) event.preventDefault(); // A second press: the first is on its way.
    form.dataset.sent = "1";
  });

  document.addEventListener("formdata", (event) => {
    if (event.target.method !== "get") return;
    for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name); // Short addresses.
  });

  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });

  // -- keys -------------------------------------------------------------------------------------------------

  function step(by) {
    const rows = [...document.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    const here = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
    const next = rows[Math.min(rows.length - 1, Math.max(0, here + by))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (isTyping(document.activeElement)) {
      if (event.key === "Escape") document.activeElement.blur();
      return;
    }
    const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "/") document.querySelector("[type=search]")?.focus();
    else if (event.key === "?") document.getElementById("keys")?.showModal();
    else if (link) link.click();
    else return;
    event.preventDefault();
  });

  showAges(document);
  setInterval(() => document.hidden || showAges(document), 1000);
  document.querySelectorAll("[data-live]").forEach(follow);
})();
