"use strict";
// Shows as many cells as fit, sends the first visible row to the server, and displays the events of the server.

const ROW_HEIGHT = 120;  // As in page.html.
const MOST_CELLS = 64;   // As in screen.py.

const list = document.getElementById("list");
const rows = document.getElementById("rows");
const lost = document.getElementById("lost");
let events = null;
let screenName = null;
let rowCount = 0;
let cells = [];
let told = null;       // The first row as known to the server.
let arrived = new Map();  // Events by row, because the server sends each once.
let telling = false;

class Cell {
    constructor() {
        this.row = null;
        this.element = rows.appendChild(document.createElement("div"));
        this.element.className = "cell";
        this.number = this.element.appendChild(document.createElement("span"));
        this.content = null;
    }

    show(row) {
        if (row === this.row) return;
        this.row = row;
        this.fill(arrived.get(row));
        this.number.textContent = row + 1;
        this.element.hidden = row >= rowCount;
        this.element.style.transform = `translateY(${row * ROW_HEIGHT}px)`;
    }

    // A new element each time: an old one would show the previous picture until the new one has loaded.
    fill(news) {
        this.content?.remove();
        this.content = null;
        if (!news) return;
        this.content = this.element.appendChild(document.createElement(news.picture ? "img" : "i"));
        if (news.picture) this.content.src = news.picture;
        else this.content.textContent = news.failed;
    }
}

function open() {
    events?.close();
    const count = Math.min(MOST_CELLS, Math.ceil(list.clientHeight / ROW_HEIGHT) + 1);
    events = new EventSource(`/events?cells=${count}`);
    events.onopen = () => lost.hidden = true;
    events.onerror = () => lost.hidden = false;  // The browser reconnects by itself.
    events.onmessage = event => hear(JSON.parse(event.data));
}

function hear(news) {
    if (news.screen) begin(news);
    else if (news.counters) {
        for (const [name, value] of Object.entries(news.counters)) {
            document.getElementById(name).textContent = value.toLocaleString();
        }
    } else {
        arrived.set(news.row, news);
        const cell = cells[news.row % cells.length];
        if (cell.row === news.row) cell.fill(news);  // Otherwise the list has scrolled on.
    }
}

// Starts a new, empty screen, at the start and after each loss of the connection.
function begin(news) {
    screenName = news.screen;
    rowCount = news.rows;
    rows.replaceChildren();
    rows.style.height = `${rowCount * ROW_HEIGHT}px`;
    cells = Array.from({ length: news.cells }, () => new Cell());
    told = null;
    arrived = new Map();
    scrolled();
}

function scrolled() {
    const first = Math.min(rowCount - 1, Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT)));
    for (let row = first; row < first + cells.length; row++) cells[row % cells.length].show(row);
    tell();
}

// Sends one position at a time, to keep their order. Rows scrolled over in the meantime are never requested.
async function tell() {
    if (telling) return;
    telling = true;
    while (cells.length) {
        const name = screenName, first = Math.min(...cells.map(cell => cell.row));
        if (first === told) break;
        const answer = await fetch(`/screen/${name}`, { method: "POST", body: JSON.stringify({ first }) })
            .catch(() => null);
        if (name !== screenName) continue;
        if (!answer?.ok) break;  // The screen or the server is gone: the next event stream begins a new screen.
        told = first;
        for (const row of arrived.keys()) if (row < first || row >= first + cells.length) arrived.delete(row);
    }
    telling = false;
}

list.addEventListener("scroll", () => requestAnimationFrame(scrolled));
let resizing = null;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(open, 200); });
open();
