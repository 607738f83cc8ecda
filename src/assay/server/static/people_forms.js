// Forms of an answer. Each is {element, value(), set(draft), first}: value() is undefined until the answer is whole.
// Text from outside becomes text nodes only.
"use strict";

(() => {
  /** An element: properties, data-*, on* listeners, children (texts or elements). */
  function h(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((c) => c !== null && c !== undefined));
    return element;
  }

  let names = 0;
  const unique = (prefix) => `${prefix}-${(names += 1)}`;
  const letter = (n) => (n < 26 ? String.fromCharCode(65 + n) : String(n + 1));

  /** Items in an order of this person's own, the same each time: sorted by a hash of seed and id. */
  function shuffled(items, seed) {
    const hash = (text) => {
      let value = 2166136261;
      for (const character of text) value = Math.imul(value ^ character.codePointAt(0), 16777619) >>> 0;
      value = Math.imul(value ^ (value >>> 15), 2246822519) >>> 0;
      return (value ^ (value >>> 13)) >>> 0;
    };
    return [...items].sort((a, b) => hash(seed + a.id) - hash(seed + b.id) || (a.id < b.id ? -1 : 1));
  }
  const arranged = (form, items, context) => (form.shuffle ? shuffled(items, context.order) : items);

  /** What an item shows: its label, its text, its picture or recording. */
  function shown(item, context, label) {
    const title = item.label ?? (item.text === undefined && item.part === undefined ? item.id : label);
    return [
      title === undefined ? null : h("span", { className: "words", dir: "auto" }, title),
      item.text === undefined ? null : h("span", { className: "words", dir: "auto" }, item.text),
      item.part === undefined ? null : context.part(item.part, title ?? label ?? item.id),
    ];
  }
  /** A letter for what has no words of its own. */
  const spoken = (item, n) => (item.text === undefined ? letter(n) : undefined);
  const named = (item, label) => item.label ?? item.text ?? label ?? item.id;

  function radio(name, value, key, content, context, className = "") {
    const input = h("input", { type: "radio", name, value, onchange: context.changed });
    return h("label", { className: `option ${className}` }, input, h("span", { className: "what" }, content), key ? h("kbd", { "aria-hidden": "true" }, key) : null);
  }
  const checked = (root, name) => root.querySelector(`input[name="${name}"]:checked`)?.value;
  function check(root, name, value) {
    for (const input of root.querySelectorAll(`input[name="${name}"]`)) input.checked = input.value === String(value);
  }

  // -- one answer ----------------------------------------------------------------------------------------------------

  function text(form, context) {
    const line = form.lines === 1;
    const field = h(line ? "input" : "textarea", {
      className: "line", dir: "auto", autocomplete: "off", spellcheck: true, "aria-label": "Your answer", oninput: context.changed,
      ...(line ? { type: "text" } : { rows: form.lines || 4 }),
    });
    return {
      element: field, first: field,
      value: () => (field.value.trim() ? field.value : undefined),
      set: (draft) => { field.value = typeof draft === "string" ? draft : ""; },
    };
  }

  function json(form, context) {
    const inner = text({ lines: 8 }, context);
    inner.element.classList.add("drawn");
    const parse = () => {
      try {
        const found = JSON.parse(inner.element.value);
        return found !== null && typeof found === "object" && !Array.isArray(found) ? found : undefined;
      } catch { return undefined; }
    };
    return {
      ...inner, element: h("label", { className: "field" }, "A JSON object", inner.element), value: parse,
      set: (draft) => { inner.element.value = draft === undefined ? "" : JSON.stringify(draft, null, 1); },
    };
  }

  function choice(form, context) {
    const name = unique("choice");
    const bare = !("schema" in form) && form.plain;
    const items = arranged(form, form.options, context);
    const element = h("fieldset", { "data-keys": name }, h("legend", { className: "hidden" }, "Choose one"),
      h("div", { className: "options" }, items.map((item, n) => radio(name, item.id, n < 9 ? String(n + 1) : "", shown(item, context, letter(n)), context))));
    return {
      element, first: element.querySelector("input"),
      value: () => { const id = checked(element, name); return id === undefined ? undefined : bare ? id : { choice: id }; },
      set: (draft) => check(element, name, bare ? draft : draft?.choice),
    };
  }

  /** One number on a scale: buttons where they are few, a slider that must be moved where they are many. */
  function scale(form, context, label) {
    const name = unique("scale");
    const steps = Math.round((form.high - form.low) / form.step) + 1;
    const at = (n) => Number((form.low + n * form.step).toFixed(10));
    const unsure = form.unsure ? radio(name, "unsure", "0", "Unsure", context) : null;
    if (steps <= 11) {
      const element = h("fieldset", { "data-keys": name }, h("legend", { className: label ? "" : "hidden", dir: "auto" }, label || "Rating"),
        h("div", { className: "scale" }, Array.from({ length: steps }, (_, n) => {
          const value = String(at(n));
          const said = form.labels?.[value];
          return radio(name, value, n < 9 ? String(n + 1) : "", said ? `${value} · ${said}` : value, context);
        }), unsure));
      return {
        element, first: element.querySelector("input"),
        value: () => { const found = checked(element, name); return found === undefined ? undefined : found === "unsure" ? null : Number(found); },
        set: (draft) => check(element, name, draft === null ? "unsure" : draft),
      };
    }
    let set = false;
    const output = h("output", {}, "–");
    const range = h("input", { type: "range", min: form.low, max: form.high, step: form.step, "aria-label": label || "Rating" });
    const box = h("div", { className: "slider unset" }, range, output);
    const doubt = form.unsure ? h("input", { type: "checkbox" }) : null;
    const show = () => {
      box.classList.toggle("unset", !set);
      output.textContent = doubt?.checked ? "unsure" : set ? range.value : "–";
      range.setAttribute("aria-valuetext", set ? (form.labels?.[range.value] ?? range.value) : "not set yet");
    };
    const moved = () => { set = true; if (doubt) doubt.checked = false; show(); context.changed(); };
    range.addEventListener("input", moved);
    // A click that leaves the handle where it is sets it all the same.
    range.addEventListener("pointerup", moved);
    range.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); moved(); } });
    if (doubt) doubt.addEventListener("change", () => { show(); context.changed(); });
    const ends = h("div", { className: "ends" }, h("span", { dir: "auto" }, form.labels?.[String(form.low)] ?? String(form.low)), h("span", { dir: "auto" }, form.labels?.[String(form.high)] ?? String(form.high)));
    box.append(ends);
    show();
    const element = h("fieldset", {}, h("legend", { className: label ? "" : "hidden", dir: "auto" }, label || "Rating"), box, doubt ? h("label", { className: "check" }, doubt, "Unsure") : null);
    return {
      element, first: range,
      value: () => (doubt?.checked ? null : set ? Number(range.value) : undefined),
      set: (draft) => {
        if (draft === undefined) return;
        if (draft === null) { if (doubt) doubt.checked = true; } else { range.value = draft; set = true; }
        show();
      },
    };
  }

  function rating(form, context) {
    const inner = scale(form, context, "");
    const media = form.part === undefined ? [] : [context.part(form.part, "Recording")];
    return {
      element: h("div", {}, media, inner.element), first: inner.first,
      value: () => { const found = inner.value(); return found === undefined ? undefined : { rating: found }; },
      set: (draft) => inner.set(draft && "rating" in draft ? draft.rating : undefined),
    };
  }

  function pair(form, context) {
    const name = unique("pair");
    const items = arranged(form, [form.a, form.b], context);
    const element = h("fieldset", { "data-keys": name }, h("legend", { className: "hidden" }, "Which is better?"),
      h("div", { className: "options pair" }, items.map((item, n) => radio(name, item.id, String(n + 1), shown(item, context, letter(n)), context)),
        form.tie ? radio(name, "tie", "3", "Neither is better", context, "tie") : null));
    return {
      element, first: element.querySelector("input"),
      value: () => { const id = checked(element, name); return id === undefined ? undefined : { preferred: id }; },
      set: (draft) => check(element, name, draft?.preferred),
    };
  }

  // -- many items ----------------------------------------------------------------------------------------------------

  function ratings(form, context) {
    const items = arranged(form, form.items, context);
    const rows = items.map((item, n) => {
      const label = item.label ?? (item.part === undefined ? named(item) : letter(n));
      const inner = scale(form, context, label);
      const extra = [item.label !== undefined && item.text !== undefined ? h("div", { className: "words", dir: "auto" }, item.text) : null, item.part === undefined ? null : context.part(item.part, label)];
      inner.element.querySelector("legend").after(...extra.filter(Boolean));
      return { id: item.id, ...inner };
    });
    const reference = form.reference === undefined ? null : h("div", { className: "field" }, form.reference_label, context.part(form.reference, form.reference_label));
    return {
      element: h("div", {}, reference, rows.map((r) => r.element)), first: rows[0].first,
      value: () => {
        const found = rows.map((r) => [r.id, r.value()]);
        return found.some(([, v]) => v === undefined) ? undefined : { ratings: Object.fromEntries(found) };
      },
      partial: () => ({ ratings: Object.fromEntries(rows.map((r) => [r.id, r.value()]).filter(([, v]) => v !== undefined)) }),
      set: (draft) => { for (const r of rows) r.set(draft?.ratings?.[r.id]); },
    };
  }

  function relevance(form, context) {
    const rows = form.items.map((item, n) => {
      const name = unique("mark");
      const element = h("fieldset", { className: "mark-row", "data-keys": name },
        h("legend", { className: "hidden", dir: "auto" }, named(item, letter(n))),
        h("div", {}, shown(item, context)),
        h("div", { className: "both" }, radio(name, "yes", "1", form.yes, context), radio(name, "no", "2", form.no, context)));
      return { id: item.id, element, name };
    });
    const given = () => rows.map((r) => [r.id, checked(r.element, r.name)]).filter(([, v]) => v !== undefined).map(([id, v]) => [id, v === "yes"]);
    return {
      element: h("div", { className: "matrix" }, rows.map((r) => r.element)), first: rows[0].element.querySelector("input"),
      value: () => { const found = given(); return found.length === rows.length ? { relevant: Object.fromEntries(found) } : undefined; },
      partial: () => ({ relevant: Object.fromEntries(given()) }),
      set: (draft) => {
        for (const r of rows) {
          const was = draft?.relevant?.[r.id];
          if (was !== undefined) check(r.element, r.name, was ? "yes" : "no");
        }
      },
    };
  }

  function ranking(form, context) {
    const items = new Map(form.items.map((item) => [item.id, item]));
    let order = arranged(form, form.items, context).map((item) => item.id);
    const sure = h("input", { type: "checkbox", onchange: () => context.changed() });
    const list = h("ol", { className: "order", "aria-label": "Best first" });
    let dragged = null;
    const moveTo = (id, to, focus) => {
      to = Math.max(0, Math.min(order.length - 1, to));
      if (order.indexOf(id) === to) return;
      order = order.filter((other) => other !== id);
      order.splice(to, 0, id);
      sure.checked = true;
      draw();
      if (focus) list.querySelectorAll("li")[to].querySelector(`button.${focus}`).focus();
      window.assay.say(`${named(items.get(id))}: place ${to + 1} of ${order.length}`);
      context.changed();
    };
    // Recordings and pictures are made once: moving one must not load it again or lose its place.
    const rows = new Map([...items].map(([id, item], n) => {
      const at = () => order.indexOf(id);
      const step = (by, name, sign) => h("button", { type: "button", className: name, "aria-label": `${named(item, letter(n))}: ${name}`, onclick: () => moveTo(id, at() + by, name) }, sign);
      return [id, h("li", {
        draggable: true,
        ondragstart: (event) => { dragged = id; event.dataTransfer.setData("text/plain", id); event.target.classList.add("dragged"); },
        ondragend: (event) => { dragged = null; event.target.classList.remove("dragged"); },
        ondragover: (event) => { if (dragged) event.preventDefault(); },
        ondrop: (event) => { event.preventDefault(); if (dragged) moveTo(dragged, at()); },
      }, h("span", { className: "what" }, shown(item, context, spoken(item, n))), step(-1, "up", "↑"), step(1, "down", "↓"))];
    }));
    function draw() { list.replaceChildren(...order.map((id) => rows.get(id))); }
    draw();
    return {
      element: h("div", {}, list, h("label", { className: "check" }, sure, "The order is right: best first")), first: list.querySelector("button"),
      value: () => (sure.checked ? { ranking: order } : undefined),
      partial: () => ({ ranking: order, sure: sure.checked }),
      set: (draft) => {
        if (!Array.isArray(draft?.ranking) || draft.ranking.length !== order.length || !draft.ranking.every((id) => items.has(id))) return;
        order = [...draft.ranking];
        sure.checked = draft.sure !== false;
        draw();
      },
    };
  }

  function grouping(form, context) {
    const items = new Map(form.items.map((item) => [item.id, item]));
    let groups = [];  // {name, members}
    let chosen = null;
    const pool = h("div", { className: "pool", "aria-label": "Not in a group yet" });
    const board = h("div", { className: "groups" });
    const fresh = () => { let n = groups.length + 1; while (groups.some((g) => g.name === String(n))) n += 1; return String(n); };
    const groupOf = (id) => groups.find((g) => g.members.includes(id));
    const put = (id, group, focus = true) => {
      for (const other of groups) other.members = other.members.filter((member) => member !== id);
      if (group) group.members.push(id);
      chosen = null;
      draw();
      if (focus) cards.get(id).querySelector("select").focus();
      window.assay.say(`${named(items.get(id))}: ${group ? `group ${group.name}` : "in no group"}`);
      context.changed();
    };
    const make = () => { const group = { name: fresh(), members: [] }; groups.push(group); return group; };
    const target = (element, group) => {
      element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("over"); });
      element.addEventListener("dragleave", () => element.classList.remove("over"));
      element.addEventListener("drop", (event) => {
        event.preventDefault();
        element.classList.remove("over");
        const id = event.dataTransfer.getData("text/plain");
        if (items.has(id)) put(id, group(), false);
      });
      // By touch: first the card, then where it goes.
      element.addEventListener("click", (event) => { if (chosen && !event.target.closest("button, select, input, .card")) put(chosen, group(), false); });
      return element;
    };
    const cards = new Map([...items].map(([id, item], n) => {
      const select = h("select", { "aria-label": `Group of ${named(item, letter(n))}`, onchange: () => put(id, select.value === "new" ? make() : groups[Number(select.value)]) });
      const card = h("div", {
        className: "card", draggable: true,
        ondragstart: (event) => { event.dataTransfer.setData("text/plain", id); card.classList.add("dragged"); },
        ondragend: () => card.classList.remove("dragged"),
        onkeydown: (event) => {
          if (!/^[1-9n]$/.test(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
          event.preventDefault();
          event.stopPropagation();
          const group = event.key === "n" ? make() : groups[Number(event.key) - 1];
          if (group) put(id, group);
        },
      }, h("button", { type: "button", className: "what", "aria-pressed": "false", onclick: () => { chosen = chosen === id ? null : id; mark(); } }, shown(item, context, spoken(item, n))), select);
      return [id, card];
    }));
    function mark() {
      for (const [id, card] of cards) {
        card.classList.toggle("chosen", chosen === id);
        card.querySelector("button").setAttribute("aria-pressed", String(chosen === id));
      }
    }
    function choices() {
      for (const [id, card] of cards) {
        const at = groups.indexOf(groupOf(id));
        card.querySelector("select").replaceChildren(
          h("option", { value: "-1", selected: at < 0 }, "no group"),
          ...groups.map((group, n) => h("option", { value: String(n), selected: at === n }, group.name || `(${n + 1})`)),
          h("option", { value: "new" }, "new group"));
      }
    }
    function draw() {
      pool.replaceChildren(h("span", { className: "note" }, "Not in a group yet"), ...[...items.keys()].filter((id) => !groupOf(id)).map((id) => cards.get(id)));
      board.replaceChildren(...groups.map((group, n) => target(h("section", { className: "group", "aria-label": `Group ${n + 1}` },
        h("header", {}, h("kbd", { "aria-hidden": "true" }, String(n + 1)),
          h("input", { value: group.name, dir: "auto", "aria-label": `Name of group ${n + 1}`, oninput: (event) => { group.name = event.target.value.trim(); choices(); context.changed(); } }),
          h("button", { type: "button", className: "plain", "aria-label": `Dissolve group ${n + 1}`, onclick: () => { groups = groups.filter((g) => g !== group); draw(); context.changed(); } }, "×")),
        group.members.map((id) => cards.get(id))), () => group)),
        target(h("div", { className: "pool" }, h("button", { type: "button", onclick: () => { const group = make(); if (chosen) put(chosen, group); else draw(); } }, "New group")), make));
      choices();
      mark();
    }
    target(pool, () => null);
    draw();
    const answer = () => Object.fromEntries(groups.flatMap((g) => g.members.map((id) => [id, g.name])));
    return {
      element: h("fieldset", {}, h("legend", {}, "Put what belongs together into one group"),
        h("p", { className: "note" }, "Drag, tap a card and then a group, or choose from its list. On a card, keys 1 to 9 put it into that group, n into a new one."), pool, board),
      first: pool.querySelector("select"),
      value: () => {
        const used = groups.filter((g) => g.members.length);
        const whole = [...items.keys()].every((id) => groupOf(id)?.name) && new Set(used.map((g) => g.name)).size === used.length;
        return whole ? { groups: answer() } : undefined;
      },
      partial: () => ({ groups: answer() }),
      set: (draft) => {
        groups = [];
        for (const [id, name] of Object.entries(draft?.groups || {})) {
          if (!items.has(id)) continue;
          let group = groups.find((g) => g.name === name);
          if (!group) groups.push((group = { name, members: [] }));
          group.members.push(id);
        }
        draw();
      },
    };
  }

  function spans(form, context) {
    let found = [];
    let from = null, to = null;
    const points = (end) => Array.from(form.text.slice(0, end)).length;
    const units = (point) => Array.from(form.text).slice(0, point).join("").length;
    const box = h("div", { className: "spans words", dir: "auto", role: "group", "aria-label": "The text; arrow keys move from word to word, with Shift they pick several" });
    const words = [];
    let last = 0;
    for (const match of form.text.matchAll(/\S+/g)) {
      box.append(form.text.slice(last, match.index));
      const at = words.length;
      words.push(h("span", { className: "word", tabIndex: at ? -1 : 0, onclick: (event) => pick(at, event.shiftKey || (from !== null && to === from && at !== from)), onkeydown: (event) => walk(event, at) }, match[0]));
      words[at].range = [match.index, match.index + match[0].length];
      box.append(words[at]);
      last = match.index + match[0].length;
    }
    box.append(form.text.slice(last));
    function pick(at, more) {
      to = at;
      if (!more) from = at;
      draw();
    }
    function walk(event, at) {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
      if (event.key === " ") { event.preventDefault(); pick(at, false); return; }
      if (!step) return;
      event.preventDefault();
      const towards = getComputedStyle(box).direction === "rtl" && Math.abs(step) === 1 ? -step : step;
      const next = Math.max(0, Math.min(words.length - 1, at + towards));
      pick(next, event.shiftKey);
      words[at].tabIndex = -1;
      words[next].tabIndex = 0;
      words[next].focus();
    }
    function selected() {
      const selection = window.getSelection();
      if (selection && !selection.isCollapsed && box.contains(selection.anchorNode) && box.contains(selection.focusNode)) {
        const range = selection.getRangeAt(0);
        const before = document.createRange();
        before.setStart(box, 0);
        before.setEnd(range.startContainer, range.startOffset);
        const start = before.toString().length;
        return [start, start + range.toString().length];
      }
      if (from === null || to === null) return null;
      const [low, high] = from < to ? [from, to] : [to, from];
      return [words[low].range[0], words[high].range[1]];
    }
    function label(name) {
      const range = selected();
      if (!range || range[0] === range[1]) return;
      found.push({ start: points(range[0]), end: points(range[1]), label: name });
      found.sort((a, b) => a.start - b.start || a.end - b.end);
      window.getSelection()?.removeAllRanges();
      from = to = null;
      none.checked = false;
      draw();
      context.changed();
    }
    const none = h("input", { type: "checkbox", onchange: () => { if (none.checked) found = []; draw(); context.changed(); } });
    const list = h("ul", {});
    const buttons = form.labels.map((name, n) => h("button", { type: "button", "data-key": n < 9 ? String(n + 1) : "", onclick: () => label(name) }, h("kbd", { "aria-hidden": "true" }, String(n + 1)), " ", h("bdi", {}, name)));
    function draw() {
      const [low, high] = from === null ? [1, 0] : from < to ? [from, to] : [to, from];
      words.forEach((word, n) => {
        const [a, b] = word.range.map(points);
        word.classList.toggle("picked", n >= low && n <= high);
        word.classList.toggle("labelled", found.some((s) => s.start < b && s.end > a));
      });
      list.replaceChildren(...found.map((span) => h("li", {}, h("bdi", {}, form.text.slice(units(span.start), units(span.end))), " – ", h("bdi", {}, span.label), " ",
        h("button", { type: "button", "aria-label": "Remove", onclick: () => { found = found.filter((s) => s !== span); draw(); context.changed(); } }, "×"))));
    }
    draw();
    return {
      element: h("fieldset", {}, h("legend", {}, "Mark stretches of the text"), box, h("div", { className: "labels", role: "group", "aria-label": "Labels" }, buttons), list, h("label", { className: "check" }, none, "There is nothing to mark")),
      first: words[0] || none,
      value: () => (found.length || none.checked ? { spans: found } : undefined),
      partial: () => ({ spans: found }),
      set: (draft) => { found = Array.isArray(draft?.spans) ? [...draft.spans] : []; draw(); },
    };
  }

  // -- any JSON schema -----------------------------------------------------------------------------------------------

  /** A field for a part of a schema; its value() is undefined while it is not whole. */
  function fieldOf(schema, context, label) {
    const options = schema.anyOf || schema.oneOf;
    const types = [schema.type ?? []].flat();
    if (options?.length === 2 && options.some((o) => o.type === "null")) return nullable(options.find((o) => o.type !== "null"), context, label);
    if (types.length === 2 && types.includes("null")) return nullable({ ...schema, type: types.find((t) => t !== "null") }, context, label);
    if ("const" in schema) return fieldOf({ enum: [schema.const] }, context, label);
    if (schema.enum) return enumerated(schema.enum, context, label);
    switch (types[0]) {
      case "boolean": return enumerated([true, false], context, label, ["yes", "no"]);
      case "integer": case "number": return numeric(schema, context, label, types[0] === "integer");
      case "string": return textual(schema, context, label);
      case "object": return schema.properties ? objectOf(schema, context, label) : free(context, label);
      case "array": return arrayOf(schema, context, label);
      default: return free(context, label);
    }
  }

  const titled = (schema, key) => schema.title || schema.description || key;

  function enumerated(values, context, label, said = values.map(String)) {
    const name = unique("enum");
    const element = h("fieldset", { "data-keys": name }, h("legend", { dir: "auto" }, label),
      h("div", { className: "scale" }, values.map((_, n) => radio(name, String(n), n < 9 ? String(n + 1) : "", said[n], context))));
    return {
      element, first: element.querySelector("input"),
      value: () => { const n = checked(element, name); return n === undefined ? undefined : values[Number(n)]; },
      set: (draft) => { const n = values.indexOf(draft); if (n >= 0) check(element, name, n); },
    };
  }

  function numeric(schema, context, label, whole) {
    const { minimum: low, maximum: high } = schema;
    if (whole && low !== undefined && high !== undefined && high > low && high - low <= 10) return scale({ low, high, step: 1 }, context, label);
    const field = h("input", { type: "number", step: whole ? 1 : "any", oninput: context.changed });
    if (low !== undefined) field.min = low;
    if (high !== undefined) field.max = high;
    return {
      element: h("label", { className: "field", dir: "auto" }, label, field), first: field,
      value: () => (field.value === "" || !field.checkValidity() ? undefined : Number(field.value)),
      set: (draft) => { field.value = draft ?? ""; },
    };
  }

  function textual(schema, context, label) {
    const short = schema.maxLength !== undefined && schema.maxLength <= 120;
    const inner = text({ lines: short ? 1 : 3 }, context);
    inner.element.removeAttribute("aria-label");
    if (schema.maxLength) inner.element.maxLength = schema.maxLength;
    return { ...inner, element: h("label", { className: "field", dir: "auto" }, label, inner.element) };
  }

  function nullable(schema, context, label) {
    const inner = fieldOf(schema, context, label);
    const none = h("input", { type: "checkbox", onchange: context.changed });
    return {
      element: h("div", {}, inner.element, h("label", { className: "check" }, none, "none")), first: inner.first,
      value: () => (none.checked ? null : inner.value()),
      set: (draft) => { none.checked = draft === null; if (draft !== null) inner.set(draft); },
    };
  }

  function free(context, label) {
    const inner = text({ lines: 3 }, context);
    return {
      ...inner, element: h("label", { className: "field", dir: "auto" }, `${label} (JSON)`, inner.element),
      value: () => { try { return JSON.parse(inner.element.value); } catch { return undefined; } },
      set: (draft) => { inner.element.value = draft === undefined ? "" : JSON.stringify(draft); },
    };
  }

  function objectOf(schema, context, label) {
    const required = new Set(schema.required || []);
    const fields = Object.entries(schema.properties).map(([key, inner]) => [key, fieldOf(inner, context, titled(inner, key) + (required.has(key) ? "" : " (optional)"))]);
    const given = () => Object.fromEntries(fields.map(([key, f]) => [key, f.value()]).filter(([, v]) => v !== undefined));
    return {
      element: h("fieldset", {}, label ? h("legend", { dir: "auto" }, label) : null, fields.map(([, f]) => f.element)), first: fields[0]?.[1].first,
      value: () => { const found = given(); return [...required].every((key) => key in found) ? found : undefined; },
      partial: () => Object.fromEntries(fields.map(([key, f]) => [key, f.partial ? f.partial() : f.value()]).filter(([, v]) => v !== undefined)),
      set: (draft) => { for (const [key, f] of fields) f.set(draft?.[key]); },
    };
  }

  function arrayOf(schema, context, label) {
    const inner = schema.items || {};
    const least = schema.minItems || 0;
    const most = schema.maxItems ?? Infinity;
    const fits = (list) => (list.length >= least && list.length <= most ? list : undefined);
    if (inner.enum) {
      const boxes = inner.enum.map((value) => [value, h("input", { type: "checkbox", onchange: context.changed })]);
      const element = h("fieldset", {}, h("legend", { dir: "auto" }, label), boxes.map(([value, box]) => h("label", { className: "check" }, box, h("bdi", {}, String(value)), " ")));
      return {
        element, first: boxes[0]?.[1],
        value: () => fits(boxes.filter(([, box]) => box.checked).map(([value]) => value)),
        set: (draft) => { for (const [value, box] of boxes) box.checked = Array.isArray(draft) && draft.includes(value); },
      };
    }
    let rows = [];
    const list = h("div", {});
    const add = (draft) => {
      const field = fieldOf(inner, context, `${label} ${rows.length + 1}`);
      const row = { ...field, box: h("div", {}, field.element, h("button", { type: "button", className: "plain", onclick: () => { rows = rows.filter((r) => r !== row); row.box.remove(); context.changed(); } }, "Remove")) };
      rows.push(row);
      list.append(row.box);
      row.set(draft);
      return row;
    };
    const more = h("button", { type: "button", onclick: () => { if (rows.length < most) { add().first?.focus(); context.changed(); } } }, "Add");
    for (let n = 0; n < least; n += 1) add();
    return {
      element: h("fieldset", {}, h("legend", { dir: "auto" }, label), list, more), first: rows[0]?.first || more,
      value: () => { const found = rows.map((r) => r.value()); return found.includes(undefined) ? undefined : fits(found); },
      partial: () => rows.map((r) => r.value()).filter((v) => v !== undefined),
      set: (draft) => {
        if (!Array.isArray(draft)) return;
        rows = [];
        list.replaceChildren();
        draft.forEach(add);
      },
    };
  }

  const schema = (form, context) => fieldOf(form.schema, context, form.schema.title || "");

  window.assayForms = { h, kinds: { text, json, choice, rating, pair, ratings, relevance, ranking, grouping, spans, schema } };
})();
