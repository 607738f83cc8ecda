// A run that is going on is shown as it goes; arrow keys go from record to record. Pages are whole without this.
"use strict";

(() => {
  const EVERY = 2000;
  const watch = document.getElementById("watch");
  const number = new Intl.NumberFormat("en");

  const item = (trial) => {
    const line = document.createElement("li");
    const mark = document.createElement("span");
    mark.className = `mark ${trial.status}`;
    mark.textContent = trial.status;
    const link = document.createElement("a");
    const query = new URLSearchParams({ at: trial.task, sample: trial.sample, attempt: trial.attempt });
    link.href = `${watch.dataset.records}?${query}`;
    link.dir = "auto";
    link.textContent = `${trial.task} / ${trial.sample}`;
    const said = document.createElement("span");
    said.className = "said";
    said.dir = "auto";
    said.textContent = trial.error || trial.scores;
    const time = document.createElement("span");
    time.className = "time";
    time.textContent = trial.seconds;
    line.append(mark, " ", link, " ", said, " ", time);
    return line;
  };

  const show = (now) => {
    document.getElementById("bar").value = now.done;
    document.getElementById("done").textContent = number.format(now.done);
    document.getElementById("errors").textContent = number.format((now.counts.error || 0) + (now.counts.timeout || 0));
    document.getElementById("pace").textContent = now.pace ?? "–";
    document.getElementById("left").textContent = now.left || "–";
    const mark = document.querySelector("#status .mark");
    mark.className = `mark ${now.status}`;
    mark.textContent = now.status;
    const running = now.status === "running";
    document.querySelectorAll(".going").forEach((part) => { part.hidden = !running; });
    document.getElementById("latest").hidden = !running;
    if (running && !document.querySelector(".latest").contains(document.activeElement)) {
      document.querySelector(".latest").replaceChildren(...now.latest.map(item));
    }
  };

  // Scores take longer than a count: they are fetched as part of the page and put in its place.
  const scores = async () => {
    const text = await (await fetch(location.href, { credentials: "same-origin" })).text();
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("scores");
    const old = document.getElementById("scores");
    if (!fresh || old.contains(document.activeElement)) return;
    const pending = "pending" in fresh.dataset;
    if (!pending) {
      delete old.dataset.pending;
      old.removeAttribute("aria-busy");
    }
    if (!pending || "pending" in old.dataset) old.replaceChildren(...fresh.childNodes);
  };

  const untilThere = async () => {
    await scores().catch(() => {});
    if ("pending" in document.getElementById("scores").dataset) setTimeout(untilThere, 1000);
    else window.assay.say("The scores are there.");
  };
  if (document.querySelector("#scores[data-pending]")) setTimeout(untilThere, 700);

  if (watch && watch.dataset.running === "yes") {
    let round = 0;
    const look = async () => {
      let going = true;
      try {
        if (document.visibilityState === "visible") {
          const now = await window.assay.send(watch.dataset.progress, undefined, "GET");
          show(now);
          going = now.status === "running";
          round += 1;
          if (!going || round % 5 === 0) await scores();
          if (!going) {
            window.assay.say(`The run is ${now.status}.`);
            // What the server keeps of a run that went on is up to ten seconds old.
            setTimeout(scores, 11000);
          }
        }
      } catch (error) {
        // Signed out: there is no use in asking on. Anything else may pass.
        going = error.status !== 401 && error.status !== 403;
      }
      if (going) setTimeout(look, EVERY);
    };
    setTimeout(look, EVERY);
  }

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, pre, [role=region]")) return;
    const link = document.querySelector(`a[data-key="${event.key}"]`);
    if (link) link.click();
  });
})();
