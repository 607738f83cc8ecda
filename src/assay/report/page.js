"use strict";
(() => {
  const root = document.documentElement;
  const errors = [];
  const report = (text) => { errors.push(String(text)); root.dataset.errors = errors.join(" | "); };
  addEventListener("error", (event) => report(event.message || "a resource did not load"));
  addEventListener("unhandledrejection", (event) => report(event.reason));
  document.addEventListener("securitypolicyviolation", (event) => report(`policy: ${event.violatedDirective} ${event.blockedURI}`));

  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const page = JSON.parse(document.getElementById("data").textContent);
  const hiddenSystems = new Set();
  const say = (text) => { document.getElementById("live").textContent = text; };
  const save = (name, blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // ---- colours ----------------------------------------------------------------------------------------------------
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
  const themeButton = document.getElementById("theme");
  const modes = ["", "light", "dark"];
  themeButton.addEventListener("click", () => {
    const next = modes[(modes.indexOf(root.dataset.theme || "") + 1) % modes.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    themeButton.textContent = { "": "Auto", light: "Light", dark: "Dark" }[next];
    themeButton.setAttribute("aria-label", `Colours: ${{ "": "as the device has them", light: "light", dark: "dark" }[next]}`);
    drawAll();
  });
  prefersDark.addEventListener("change", () => drawAll());

  // ---- figures ----------------------------------------------------------------------------------------------------
  const views = new Map();
  let wanted = 0;

  const copyOf = (value) => JSON.parse(JSON.stringify(value));
  const withoutHidden = (spec) => {
    const channels = (spec.usermeta && spec.usermeta.toggle) || [];
    if (!channels.length || !hiddenSystems.size) return spec;
    const clean = (node) => {
      if (!node || typeof node !== "object") return;
      if (node.data && Array.isArray(node.data.values)) {
        node.data.values = node.data.values.filter((row) => !channels.some((channel) => hiddenSystems.has(row[channel])));
      }
      Object.values(node).forEach(clean);
    };
    clean(spec);
    return spec;
  };
  const tooltip = () => {
    let box = document.getElementById("vg-tooltip-element");
    if (!box) {
      box = document.createElement("div");
      box.id = "vg-tooltip-element";
      document.body.append(box);
    }
    return (_handler, event, _item, value) => {
      if (value === null || value === undefined || value === "") { box.classList.remove("visible"); return; }
      const table = document.createElement("table");
      for (const [key, text] of Object.entries(typeof value === "object" ? value : { "": value })) {
        const row = table.insertRow();
        const name = row.insertCell();
        name.className = "key";
        name.textContent = key;
        row.insertCell().textContent = text;
      }
      box.replaceChildren(table);
      box.classList.add("visible");
      const area = box.getBoundingClientRect();
      const left = event.clientX + 14 + area.width > innerWidth ? event.clientX - 14 - area.width : event.clientX + 14;
      const top = event.clientY + 14 + area.height > innerHeight ? event.clientY - 14 - area.height : event.clientY + 14;
      box.style.left = `${Math.max(4, left)}px`;
      box.style.top = `${Math.max(4, top)}px`;
    };
  };
  const draw = async (figure) => {
    const plot = figure.querySelector(".plot");
    const spec = withoutHidden(copyOf(page.figures[figure.dataset.figure]));
    const width = plot.clientWidth;
    if (spec.facet) spec.columns = Math.max(1, Math.floor(width / ((spec.spec.width || 230) + 70)));
    figure.querySelector(".left-out").textContent = (spec.usermeta && spec.usermeta.left_out) || "";
    delete spec.$schema;
    const config = copyOf(page.themes[isDark() ? "dark" : "light"]);
    config.axis.labelLimit = Math.min(config.axis.labelLimit, Math.round(width * 0.42));
    const old = views.get(figure);
    const result = await vegaEmbed(plot, spec, {
      actions: false, ast: true, renderer: "svg", defaultStyle: false,
      config, tooltip: tooltip(),
    });
    if (old) old.finalize();
    views.set(figure, result);
    figure.dataset.drawn = "true";
  };
  // One figure after the other, those on the screen first, so that a long page answers at once.
  let queue = Promise.resolve();
  const drawAll = () => {
    const round = ++wanted;
    all("figure[data-drawn]").forEach((figure) => delete figure.dataset.drawn);
    const visible = all("figure[data-figure]").filter((figure) => figure.offsetParent !== null);
    const distance = (figure) => Math.abs(figure.getBoundingClientRect().top);
    visible.sort((a, b) => distance(a) - distance(b));
    queue = queue.then(async () => {
      for (const figure of visible) {
        if (round !== wanted) return;
        try { await draw(figure); } catch (error) { report(`${figure.dataset.figure}: ${error}`); }
        await new Promise((resume) => setTimeout(resume));
      }
      root.dataset.ready = "true";
    });
  };
  const fileName = (figure, kind) => `${page.figures[figure.dataset.figure].usermeta.file}.${kind}`;
  all(".figure").forEach((figure) => {
    figure.querySelector(".svg").addEventListener("click", async () => {
      const text = await views.get(figure).view.toSVG();
      save(fileName(figure, "svg"), new Blob([text], { type: "image/svg+xml" }));
    });
    figure.querySelector(".png").addEventListener("click", async () => {
      const view = views.get(figure).view;
      view.background(isDark() ? "#16181c" : "#ffffff");
      const canvas = await view.toCanvas(2);
      view.background("transparent");
      canvas.toBlob((blob) => save(fileName(figure, "png"), blob));
    });
  });

  // ---- tables -----------------------------------------------------------------------------------------------------
  const rawOf = (cell) => (cell.dataset.raw !== undefined ? cell.dataset.raw : cell.firstChild ? cell.firstChild.textContent : "");
  const compare = (a, b, numeric) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    if (numeric) return parseFloat(a) - parseFloat(b);
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const csvField = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  all(".table").forEach((table) => {
    const body = table.querySelector("tbody");
    const heads = all("th", table);
    heads.forEach((head, index) => head.querySelector("button").addEventListener("click", () => {
      const numeric = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numeric;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = [...body.rows].map((row) => [rawOf(row.cells[index]), row]);
      // Empty cells stay at the end whichever way the rest is sorted.
      keyed.sort(([a], [b]) => (a === "" || b === "" ? compare(a, b, numeric) : (down ? -1 : 1) * compare(a, b, numeric)));
      body.append(...keyed.map(([, row]) => row));
      say(`Sorted by ${head.textContent.trim()}, ${down ? "descending" : "ascending"}`);
    }));
    const filter = table.querySelector(".filter");
    if (filter) filter.addEventListener("input", () => { showRows(); say(`${[...body.rows].filter((r) => !r.hidden).length} rows`); });
    table.querySelector(".csv").addEventListener("click", () => {
      const shown = [...body.rows].filter((row) => !row.hidden);
      const names = heads.map((head) => (head.dataset.fields ? JSON.parse(head.dataset.fields) : [head.textContent.trim()]));
      const used = heads.map((_, index) => index).filter((index) => !heads[index].hidden);
      const split = (cell, count) => (count === 1 ? [rawOf(cell)] : Array.from({ length: count }, (_, i) => rawOf(cell).split(" ")[i] || ""));
      const line = (fields) => fields.map(csvField).join(",");
      const lines = [line(used.flatMap((index) => names[index]))];
      for (const row of shown) lines.push(line(used.flatMap((index) => split(row.cells[index], names[index].length))));
      save(`${table.dataset.name.replace(/[^A-Za-z0-9._-]+/g, "-")}.csv`, new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
    });
  });
  const systemsOf = (node) => JSON.parse(node.dataset.systems || "[]");
  const isHidden = (node) => systemsOf(node).some((system) => hiddenSystems.has(system));
  const showRows = () => {
    all(".table").forEach((table) => {
      const filter = table.querySelector(".filter");
      const words = filter ? filter.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
      for (const row of table.querySelector("tbody").rows) {
        const text = words.length ? row.textContent.toLowerCase() : "";
        row.hidden = isHidden(row) || !words.every((word) => text.includes(word));
      }
    });
  };

  // ---- choosing ---------------------------------------------------------------------------------------------------
  const showPanel = (panels) => {
    const chosen = all("select", panels).map((select) => [select.dataset.key, select.value]);
    all(":scope > .panel", panels).forEach((panel) => {
      panel.hidden = !chosen.every(([key, value]) => panel.dataset[key] === value);
    });
  };
  all(".panels").forEach((panels) => {
    all("select", panels).forEach((select) => select.addEventListener("change", () => { showPanel(panels); drawAll(); }));
    showPanel(panels);
  });
  all(".toggles input").forEach((box) => box.addEventListener("change", () => {
    if (box.checked) hiddenSystems.delete(box.value); else hiddenSystems.add(box.value);
    all("[data-system]").forEach((cell) => { cell.hidden = hiddenSystems.has(cell.dataset.system); });
    showRows();
    showTrials();
    drawAll();
  }));

  // ---- trials -----------------------------------------------------------------------------------------------------
  const showTrials = () => all(".trials").forEach((section) => {
    const kinds = new Set(all(".kind", section).filter((box) => box.checked).map((box) => box.value));
    const find = section.querySelector(".find");
    const words = find ? find.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    all(".trial", section).forEach((trial) => {
      const text = words.length ? trial.textContent.toLowerCase() : "";
      trial.hidden = isHidden(trial) || !kinds.has(trial.dataset.kind) || !words.every((word) => text.includes(word));
    });
  });
  all(".trials").forEach((section) => {
    all(".kind", section).forEach((box) => box.addEventListener("change", showTrials));
    const find = section.querySelector(".find");
    if (find) find.addEventListener("input", showTrials);
    const unfold = section.querySelector(".unfold");
    if (unfold) unfold.addEventListener("click", () => {
      const open = unfold.textContent === "Open all";
      all(".trial", section).forEach((trial) => { trial.open = open && !trial.hidden; });
      unfold.textContent = open ? "Close all" : "Open all";
    });
  });
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // Pages opened from a file may not write to the clipboard: select the line instead.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }));

  let resizing;
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(resizing);
    resizing = setTimeout(drawAll, 200);
  });
  root.dataset.errors = "";
  drawAll();
})();
