// Small things of every page; each works without scripts too.
"use strict";

window.assay = {
  /** Say something to whoever listens to the page instead of looking at it. */
  say(text) {
    document.getElementById("live").textContent = text;
  },

  /** Send a form or JSON to this server; resolves to the JSON answer, rejects with its sentence. */
  async send(path, body, method = "POST") {
    const headers = { "X-CSRF-Token": document.body.dataset.csrf || "", Accept: "application/json" };
    const form = body instanceof FormData;
    if (body !== undefined && !form) headers["Content-Type"] = "application/json";
    const response = await fetch(path, {
      method, headers, credentials: "same-origin", body: body === undefined || form ? body : JSON.stringify(body),
    });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) {
      const error = new Error(answer.error || `The server answered ${response.status}.`);
      error.status = response.status;
      throw error;
    }
    return answer;
  },
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    window.assay.say("Copied");
  } catch {
    window.getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
});
