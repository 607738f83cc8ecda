// A person's page: fetch a question, load its media, measure the time, save drafts, send the answer.
"use strict";

(() => {
  const { h, kinds } = window.assayForms;
  const root = document.getElementById("people");
  const base = `/people/${root.dataset.study}`;
  const find = (id) => document.getElementById(id);
  const stage = find("stage"), heading = find("heading"), notice = find("notice"), pauseBox = find("pause"), breakButton = find("break");
  const title = heading.textContent;
  const ROLES = { system: "Instructions", developer: "Instructions", assistant: "Reply so far", tool: "Tool" };
  const DRAFT_PAUSE = 400, HEARTBEAT = 60000;
  let current = null, waiting = null;

  const tell = (text) => { notice.textContent = text; notice.hidden = !text; };
  const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

  /** Seconds that count: they run while the page is in view and no break is on. */
  class Clock {
    constructor(seconds) { this.before = seconds; this.since = null; }
    run(on) {
      if (on && this.since === null) this.since = performance.now();
      if (!on && this.since !== null) { this.before += (performance.now() - this.since) / 1000; this.since = null; }
    }
    get seconds() { return this.before + (this.since === null ? 0 : (performance.now() - this.since) / 1000); }
  }

  // -- a question ----------------------------------------------------------------------------------------------------

  async function load() {
    clearTimeout(waiting);
    for (let pause = 1000; ; pause = Math.min(8000, pause * 1.6)) {
      try {
        const found = await window.assay.send(`${base}/next`, undefined, "GET");
        tell("");
        await show(found);
        return;
      } catch (error) {
        if (error.status && error.status !== 429 && error.status < 500) { tell(error.message); return; }
        tell("The server does not answer; this page tries again by itself.");
        await sleep(pause);
      }
    }
  }

  async function show(found) {
    leave();
    const { done, total } = found.progress;
    find("progress").max = Math.max(1, total);
    find("progress").value = done;
    find("count").textContent = found.state === "practice" ? "practice" : `${done} of ${total} answered`;
    if (found.state === "done" || found.state === "wait") {
      breakButton.hidden = true;
      heading.textContent = title;
      const said = found.state === "done" ? "All done. Thank you!" : "Nothing to answer just now. This page looks again by itself.";
      if (stage.textContent !== said) stage.replaceChildren(h("p", { className: found.state === "done" ? "done" : "note" }, said));
      window.assay.say(said);
      if (found.state === "wait") waiting = setTimeout(load, 2000);
      return;
    }
    heading.textContent = found.state === "practice" ? `Practice · ${title}` : title;
    stage.replaceChildren(h("p", { className: "note" }, "Loading …"));
    const question = { ...found, clock: new Clock(found.seconds || 0), heard: new Map(), sending: false };
    try {
      question.media = await fetchMedia(found.messages);
    } catch (error) {
      tell(`${error.message} `);
      notice.append(h("button", { type: "button", onclick: load }, "Try again"));
      return;
    }
    current = question;
    build(question);
    breakButton.hidden = false;
    question.clock.run(!document.hidden);
    question.beat = setInterval(() => save(question), HEARTBEAT);
  }

  function leave() {
    if (!current) return;
    clearInterval(current.beat);
    clearTimeout(current.saving);
    current.clock.run(false);
    for (const medium of current.media) URL.revokeObjectURL(medium.url);
    current = null;
  }

  /** Every picture and recording, whole, before anything is shown: the clock starts with all of them there. */
  async function fetchMedia(messages) {
    const parts = messages.flatMap((message) => message.parts).filter((part) => part.type !== "text");
    return Promise.all(parts.map(async (part) => {
      const response = await fetch(`${base}/media/${part.medium}`);
      if (!response.ok) throw new Error("A picture or recording could not be loaded.");
      const url = URL.createObjectURL(await response.blob());
      if (part.type === "image") {
        const image = h("img", { src: url });
        await image.decode().catch(() => { throw new Error("A picture is damaged."); });
      } else {
        await new Promise((ready, failed) => {
          const audio = h("audio", { src: url, preload: "auto", oncanplaythrough: ready, onerror: () => failed(new Error("A recording cannot be played here.")) });
          audio.load();
        });
      }
      return { type: part.type, url };
    }));
  }

  function player(question, number, label) {
    const { type, url } = question.media[number];
    if (type === "image") return h("img", { src: url, alt: label });
    const mark = h("span", { className: "heard" }, "not heard yet");
    const audio = h("audio", {
      src: url, controls: true, preload: "auto", "aria-label": label,
      onplay: () => { for (const other of stage.querySelectorAll("audio")) if (other !== audio) other.pause(); },
      onended: () => { question.heard.set(number, true); mark.textContent = "heard"; ready(question); },
    });
    if (!question.heard.has(number)) question.heard.set(number, false);
    return h("span", {}, audio, mark);
  }

  const DRAWN = / {3,}|[|_\\/#=*]{3,}|[─-╿█▀▄░▒▓]/;
  const PROSE = /^(?! {2})[\p{L}\p{N}\p{M} .,;:?!'"’()[\]–-]*$/u;
  const isProse = (lines) => lines.split("\n").every((line) => PROSE.test(line) && !/ {3,}/.test(line));

  /** A text as it reads best: drawings of characters in a fixed width and as large as fits, everything else wrapped. */
  function words(text) {
    if (!(/\n/.test(text) && DRAWN.test(text))) return [h("div", { className: "words", dir: "auto" }, text)];
    const blocks = [];
    // Odd places hold the blank lines between; those inside a drawing belong to it.
    text.split(/(\n[ \t]*\n)/).forEach((piece, n, all) => {
      if (n % 2) return;
      const prose = isProse(piece), last = blocks.at(-1);
      if (last && !last.prose && !prose) last.text += all[n - 1] + piece;
      else blocks.push({ prose, text: piece });
    });
    return blocks.map(({ prose, text: block }) => h("div", prose ? { className: "words", dir: "auto" } : { className: "words drawn", tabIndex: 0 }, block));
  }

  function fit(drawing) {
    const columns = Math.max(...drawing.textContent.split("\n").map((line) => line.length));
    const style = getComputedStyle(drawing);
    const room = drawing.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    drawing.style.fontSize = `${Math.min(14, Math.max(5, room / columns / 0.61))}px`;
  }

  function build(question) {
    const own = new Set([...(question.form.items || question.form.options || []), question.form.a, question.form.b].map((item) => item?.part));
    own.add(question.form.part).add(question.form.reference);
    let number = -1;
    const turns = question.messages.map((message) => h("section", { className: `turn ${message.role}` },
      message.role in ROLES ? h("h2", {}, ROLES[message.role]) : null,
      message.parts.flatMap((part) => {
        if (part.type === "text") return words(part.text);
        number += 1;
        // What the form shows itself is not shown twice.
        return own.has(number) ? null : player(question, number, part.type === "image" ? `Picture ${number + 1}` : `Recording ${number + 1}`);
      })));
    const context = {
      order: question.order,
      part: (k, label) => (question.media[k] ? player(question, k, label) : h("span", { className: "fault" }, `There is no picture or recording ${k}.`)),
      changed: () => changed(question),
    };
    question.view = kinds[question.form.kind](question.form, context);
    if (question.draft !== null && question.draft !== undefined) question.view.set(question.draft);
    question.button = h("button", { className: "main" }, "Send");
    question.fault = h("span", { className: "note", role: "alert" });
    const form = h("form", { className: "answer", noValidate: true, onsubmit: (event) => { event.preventDefault(); send(question); } },
      question.view.element, h("div", { className: "send" }, question.button, h("kbd", { "aria-hidden": "true" }, question.view.first?.matches("textarea") ? "Ctrl Enter" : "Enter"), question.fault));
    stage.replaceChildren(h("div", { className: "ask" }, turns), form);
    stage.querySelectorAll(".turn .drawn").forEach(fit);
    ready(question);
    window.scrollTo(0, 0);
    if (question.form.kind === "text") question.view.first.focus({ preventScroll: true });
    else heading.focus({ preventScroll: true });
    window.assay.say(`Question. ${find("count").textContent}`);
  }

  // -- answers -------------------------------------------------------------------------------------------------------

  const unheard = (question) => [...question.heard.values()].filter((heard) => !heard).length;

  function ready(question) {
    const whole = question.view.value() !== undefined;
    question.button.setAttribute("aria-disabled", String(!whole || unheard(question) > 0));
    return whole;
  }

  function changed(question) {
    ready(question);
    question.fault.textContent = "";
    clearTimeout(question.saving);
    question.saving = setTimeout(() => save(question), DRAFT_PAUSE);
  }

  async function save(question) {
    if (question !== current || question.sending || question.state === "practice") return;
    const value = question.view.value() ?? (question.view.partial ? question.view.partial() : undefined);
    const body = { question: question.question, value: value ?? null, seconds: question.clock.seconds };
    try {
      const { yours } = await window.assay.send(`${base}/draft`, body);
      if (question !== current) return;
      tell(yours || question.question.startsWith("attention-") ? "" : "You were away for long, and somebody else has this question now. Your answer is still welcome.");
    } catch (error) {
      if (question !== current) return;
      tell(error.status ? error.message : "What you type cannot be saved just now; the server does not answer.");
      clearTimeout(question.saving);
      question.saving = setTimeout(() => save(question), 3000);
    }
  }

  async function send(question) {
    if (question.sending || question !== current) return;
    const value = question.view.value();
    if (value === undefined) { question.fault.textContent = "Something is still missing."; return; }
    if (unheard(question)) { question.fault.textContent = "Listen to every recording to its end first."; return; }
    question.sending = true;
    question.clock.run(false);
    clearTimeout(question.saving);
    question.button.disabled = true;
    const body = { question: question.question, value, seconds: question.clock.seconds };
    for (let pause = 700; ; pause = Math.min(8000, pause * 1.7)) {
      try {
        const { next, ...taken } = await window.assay.send(`${base}/answer`, body);
        tell("");
        if (taken.taken === "practice") feedback(question, taken, next);
        else await show(next);
        return;
      } catch (error) {
        if (error.status && error.status !== 429 && error.status < 500) {
          question.sending = false;
          question.button.disabled = false;
          question.clock.run(true);
          question.fault.textContent = error.message;
          return;
        }
        // Sent twice it counts once: the server knows the question.
        tell("The server does not answer; your answer is kept here and sent again.");
        await sleep(pause);
      }
    }
  }

  function feedback(question, taken, next) {
    const said = taken.passed === null ? "Thank you." : taken.passed ? "Right." : "Not quite.";
    const expected = taken.passed === false ? h("p", { dir: "auto" }, "Expected: ", h("bdi", {}, typeof taken.expected === "string" ? taken.expected : JSON.stringify(taken.expected))) : null;
    const go = h("button", { type: "button", className: "main", onclick: () => show(next) }, "Next");
    stage.append(h("div", { className: taken.passed === false ? "warning" : "done", role: "status" }, h("p", {}, said), expected, taken.feedback ? h("p", { className: "words", dir: "auto" }, taken.feedback) : null, go));
    go.focus();
  }

  // -- breaks, keys --------------------------------------------------------------------------------------------------

  let breakSince = null;
  breakButton.addEventListener("click", async () => {
    if (!current) return;
    for (const audio of stage.querySelectorAll("audio")) audio.pause();
    current.clock.run(false);
    breakSince = performance.now();
    stage.hidden = breakButton.hidden = true;
    pauseBox.hidden = false;
    find("continue").focus();
    await save(current);
  });
  find("continue").addEventListener("click", () => {
    const seconds = (performance.now() - breakSince) / 1000;
    breakSince = null;
    stage.hidden = breakButton.hidden = false;
    pauseBox.hidden = true;
    window.assay.send(`${base}/break`, { seconds }).catch(() => {});
    if (current) current.clock.run(true);
    heading.focus();
  });
  document.addEventListener("visibilitychange", () => {
    if (!current || breakSince !== null) return;
    current.clock.run(!document.hidden && !current.sending);
    if (document.hidden) save(current);
  });

  /** The group that number keys act on: the one with the focus, else the first without an answer. */
  function keyed() {
    const inside = document.activeElement?.closest?.("[data-keys]");
    if (inside) return inside;
    const all = [...stage.querySelectorAll("[data-keys]")];
    return all.find((group) => !group.querySelector("input:checked")) || all[0];
  }

  document.addEventListener("keydown", (event) => {
    if (!current || breakSince !== null || event.ctrlKey || event.metaKey || event.altKey) {
      if (current && event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(current); }
      return;
    }
    const at = event.target;
    const writing = at.matches("textarea, select, input:not([type=radio], [type=checkbox], [type=range])");
    if (event.key === "Enter" && !writing && !at.matches("button, a, audio")) { event.preventDefault(); send(current); return; }
    if (writing || !/^[0-9]$/.test(event.key)) return;
    const button = stage.querySelector(`button[data-key="${event.key}"]`);
    if (button) { event.preventDefault(); button.click(); return; }
    const group = keyed();
    const inputs = group ? [...group.querySelectorAll("input[type=radio]")] : [];
    const input = event.key === "0" ? inputs.find((i) => i.value === "unsure") : inputs.filter((i) => i.value !== "unsure")[Number(event.key) - 1];
    if (!input) return;
    event.preventDefault();
    input.checked = true;
    input.dispatchEvent(new Event("change", { bubbles: true }));
    // The next of several (marks, ratings) is at hand at once.
    const next = [...stage.querySelectorAll("[data-keys]")].find((other) => !other.querySelector("input:checked"));
    (next ? next.querySelector("input") : input).focus();
  });

  load();
})();
