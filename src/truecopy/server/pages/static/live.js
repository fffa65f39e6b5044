// Keeps a page up to date: when the server says that something happened, the page is fetched again, and the parts
// of it that are marked as live are put in the place of the old ones. The server alone draws, and escapes.

const PAUSE = 1000; // between two fetches, in milliseconds
const AGAIN = 5000; // before a stream that was refused is asked for again
const stream = document.body.dataset.stream;
let wanted = false;
let busy = false;

async function fetchPage(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (answer.status === 401) location.reload(); // the session has ended: the page asks for a token
  if (!answer.ok) throw new Error(`the page answered ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// A part that somebody is at stays as it is.
function isUsed(region) {
  return region.contains(document.activeElement) || region.querySelector("input:checked") !== null;
}

function replace(old, fresh) {
  if (!fresh || isUsed(old) || old.innerHTML === fresh.innerHTML) return;
  const open = new Set([...old.querySelectorAll("details[open]")].map((one) => one.id));
  fresh.querySelectorAll("details").forEach((one) => { one.open = one.open || open.has(one.id); });
  old.replaceChildren(...fresh.childNodes);
}

async function refresh() {
  wanted = false;
  busy = true;
  try {
    const regions = [...document.querySelectorAll("[data-live]")];
    const pages = new Map();
    for (const region of regions) {
      const address = region.dataset.from ?? location.href;
      if (!pages.has(address)) pages.set(address, await fetchPage(address));
      replace(region, pages.get(address).getElementById(region.id));
    }
    document.documentElement.classList.remove("stale");
  } catch {
    document.documentElement.classList.add("stale"); // what is shown is old; the stream says when to try again
  }
  setTimeout(() => { busy = false; if (wanted) refresh(); }, PAUSE);
}

function news() {
  wanted = true;
  if (!busy) refresh();
}

function connect() {
  const source = new EventSource(stream);
  source.addEventListener("tasks", news);
  source.addEventListener("event", news);
  source.onopen = () => document.documentElement.classList.remove("stale");
  source.onerror = () => {
    document.documentElement.classList.add("stale");
    // Refused, which the browser takes for final: the page itself says why, or that it was for a while.
    if (source.readyState === EventSource.CLOSED) {
      news();
      setTimeout(connect, AGAIN);
    }
  };
}

if (stream) connect();
