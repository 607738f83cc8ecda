// A submission that waits is looked at again until it is done; what cannot be undone is asked about.
"use strict";

const waiting = document.querySelector("[data-watch]");
if (waiting) {
  const look = async () => {
    try {
      const found = await window.assay.send(waiting.dataset.watch, undefined, "GET");
      if (found.status !== waiting.dataset.status) return location.reload();
      const place = waiting.querySelector("[data-place]");
      if (place) place.textContent = found.before_it ? `${found.before_it} before it in the queue.` : "Next in the queue.";
    } catch (error) {
      if (error.status && error.status !== 429) return undefined;
    }
    return setTimeout(look, 2000);
  };
  setTimeout(look, 1000);
}

for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    if (!window.confirm(form.dataset.confirm)) event.preventDefault();
  });
}
