// Parts that views are made of: elements, numbers with units, pictures, tables.

/** What may be wider than the window: it can be scrolled with the keyboard. */
export const wide = {class: "scroll", tabindex: "0", role: "group", "aria-label": "a table that scrolls"};

/** Makes an element; text is only ever text. */
export function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value); else if (value !== undefined && value !== false) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

export function bytes(n) {
  if (!n) return "0 B";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (n >= 100 || i === 0 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)) + " " + units[i];
}

export function seconds(s) {
  if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  if (s >= 120) return `${Math.floor(s / 60)} min ${Math.floor(s) % 60} s`;
  if (s >= 1) return s.toPrecision(3) + " s";
  if (s >= 1e-3) return (s * 1e3).toPrecision(3) + " ms";
  return s > 0 ? (s * 1e6).toPrecision(3) + " µs" : "";
}

export const percent = (share) => share ? (100 * share).toFixed(0) + "%" : "";
/** A share of roofline: one above it says that the roofline was measured too low. */
export const roofline = (share) => share > 1.005 ? "over 100%" : percent(share);
export const number = (n) => n === undefined || n === null ? "" : Number(n.toPrecision(Math.abs(n) >= 1e5 ? 12 : 5)).toLocaleString("en");

/** Asks the server; its errors are texts for people. */
export async function ask(address) {
  const answer = await fetch(address);
  if (!answer.ok) {
    const text = await answer.text();
    let message = text;
    try { message = JSON.parse(text).error; } catch { /* it is plain */ }
    throw new Error(message);
  }
  return answer;
}

/** A table of texts. */
export function rows(caption, head, lines) {
  const texts = head.map((_, i) => i > 0 && lines.some((line) => String(line[i] ?? "").length > 28)), of = (i) => ({class: texts[i] ? "text" : ""});
  return make("table", {}, caption ? make("caption", {}, caption) : null, make("thead", {}, make("tr", {}, ...head.map((h, i) => h ? make("th", {scope: "col", ...of(i)}, h) : make("td")))),
    make("tbody", {}, ...lines.map((line) => make("tr", {}, ...line.map((cell, i) => make("td", i === 0 && String(cell).length > 28 ? {class: "text"} : of(i), cell))))));
}

export function tile(name, value, small) {
  return make("div", {class: "tile"}, make("dt", {}, name), make("dd", {}, value || "–", small ? make("small", {}, small) : null));
}

/** Fields of a line of CSV. */
function fields(line) {
  const list = [];
  for (const [, quoted, plain] of line.matchAll(/(?:"((?:[^"]|"")*)"|([^,]*))(?:,|$)/g)) list.push(quoted !== undefined ? quoted.replaceAll('""', '"') : plain);
  return list.slice(0, -1);
}

/** The numbers behind a picture, as a table that is filled when it is opened. */
export function numbers(address, title) {
  const table = make("div", wide), details = make("details", {}, make("summary", {}, "numbers"), table);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    try {
      const lines = (await (await ask(address("csv"))).text()).trim().split("\n").map(fields), most = 200;
      const every = Math.max(Math.ceil((lines.length - 1) / most), 1);
      table.replaceChildren(rows(every > 1 ? `${title}: every ${every}th of ${lines.length - 1} lines, all of them are in the CSV` : title, lines[0], lines.slice(1).filter((_, i) => i % every === 0)));
    } catch (error) { table.replaceChildren(make("p", {class: "bad"}, error.message)); }
  });
  return details;
}

/** Links to a view in all its forms. */
export function takeAlong(address, title) {
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  return make("p", {class: "along"}, ...["svg", "png", "csv", "json"].map((form) => {
    const link = make("a", {href: address(form), download: `${title}.${form}`.replaceAll(" ", "-"), "aria-label": `${title} as ${form.toUpperCase()}`}, form.toUpperCase());
    if (form === "png") link.addEventListener("click", () => { link.href = address(form) + (dark() ? (address(form).includes("?") ? "&" : "?") + "scheme=dark" : ""); });
    return link;
  }));
}

/** A picture of the server with its numbers behind it, and ways to take it along. */
export function figure(address, title) {
  const picture = make("div", {class: "picture"});
  const f = make("figure", {}, picture, make("figcaption", {}, numbers(address, title), takeAlong(address, title)));
  let text = "";
  f.refresh = async () => {
    try {
      const next = await (await ask(address("svg"))).text();
      if (next !== text) picture.innerHTML = text = next; // drawn by this server, which escapes all texts in it
    } catch (error) {
      text = "";
      picture.replaceChildren(make("p", {class: "bad"}, `${title}: ${error.message}`));
    }
  };
  f.refresh();
  return f;
}
