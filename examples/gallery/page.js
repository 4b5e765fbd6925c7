"use strict";
// Fills the page with cells, sends the first visible item to the server, and displays the events of the server.

const CELL_WIDTH = 180;  // Approximate; the columns fill the page.
const SHAPE = 3 / 4;     // Height of a cell by its width.
const MOST_CELLS = 256;  // As in screen.py.

const list = document.getElementById("list");
const items = document.getElementById("items");
const lost = document.getElementById("lost");
let events = null;
let screenName = null;
let itemCount = 0;
let cells = [];
let columns = 1;
let cellWidth = 0;
let cellHeight = 0;
let sentFirst = null;  // The first item as known to the server.
let arrived = new Map();  // Events by item, because the server sends each once.
let sending = false;

class Cell {
    constructor() {
        this.item = null;
        this.element = items.appendChild(document.createElement("div"));
        this.element.className = "cell";
        this.element.style.width = `${cellWidth}px`;
        this.element.style.height = `${cellHeight}px`;
        this.number = this.element.appendChild(document.createElement("span"));
        this.content = null;
    }

    show(item) {
        if (item === this.item) return;
        this.item = item;
        this.fill(arrived.get(item));
        this.number.textContent = item + 1;
        this.element.hidden = item >= itemCount;
        const x = item % columns * cellWidth, y = Math.floor(item / columns) * cellHeight;
        this.element.style.transform = `translate(${x}px, ${y}px)`;
    }

    // A new element each time: an old one would show the previous picture until the new one has loaded.
    fill(event) {
        this.content?.remove();
        this.content = null;
        if (!event) return;
        this.content = document.createElement(event.picture ? "img" : "i");
        if (event.picture) {
            this.content.alt = `Picture ${event.item + 1}`;
            this.content.src = event.picture;
        } else this.content.textContent = event.failed;
        this.element.prepend(this.content);
    }
}

// Chooses the columns and the size of the cells. Returns the number of cells that cover the list at any position.
function measure() {
    const width = list.clientWidth, height = list.clientHeight;
    for (columns = Math.max(2, Math.round(width / CELL_WIDTH)); ; columns--) {
        cellWidth = width / columns;
        cellHeight = cellWidth * SHAPE;
        const count = columns * (Math.ceil(height / cellHeight) + 1);
        if (count <= MOST_CELLS || columns === 1) return Math.min(count, MOST_CELLS);
    }
}

function open() {
    const first = firstItem();
    events?.close();
    screenName = null;  // Positions of the old screen are not sent.
    const count = measure();
    events = new EventSource(`/events?cells=${count}`);
    events.onopen = () => lost.hidden = true;
    events.onerror = () => lost.hidden = false;  // The browser reconnects by itself.
    events.onmessage = message => receive(JSON.parse(message.data), first);
}

function receive(event, first) {
    if (event.screen) begin(event, screenName === null ? first : firstItem());
    else if (event.counters) {
        for (const [name, value] of Object.entries(event.counters)) {
            document.getElementById(name).textContent = value.toLocaleString();
        }
    } else {
        arrived.set(event.item, event);
        const cell = cells[event.item % cells.length];
        if (cell.item === event.item) cell.fill(event);  // Otherwise the list has scrolled on.
    }
}

// Starts a new, empty screen at the item `first`, at the start and after each loss of the connection.
function begin(event, first) {
    screenName = event.screen;
    itemCount = event.items;
    items.replaceChildren();
    items.style.height = `${Math.ceil(itemCount / columns) * cellHeight}px`;
    cells = Array.from({ length: event.cells }, () => new Cell());
    sentFirst = null;
    arrived = new Map();
    list.scrollTop = Math.floor(first / columns) * cellHeight;
    scrolled();
}

// Returns the first item of the first visible line.
function firstItem() {
    const line = cellHeight ? Math.max(0, Math.floor(list.scrollTop / cellHeight)) : 0;
    return Math.min(line * columns, Math.max(0, Math.floor((itemCount - 1) / columns) * columns));
}

function scrolled() {
    const first = firstItem();
    for (let item = first; item < first + cells.length; item++) cells[item % cells.length].show(item);
    sendPosition();
}

// Sends one position at a time, to keep their order. Items scrolled over in the meantime are never requested.
async function sendPosition() {
    if (sending) return;
    sending = true;
    while (cells.length && screenName) {
        const name = screenName, first = Math.min(...cells.map(cell => cell.item));
        if (first === sentFirst) break;
        const answer = await fetch(`/screen/${name}`, { method: "POST", body: JSON.stringify({ first }) })
            .catch(() => null);
        if (name !== screenName) continue;
        if (!answer?.ok) break;  // The screen or the server is gone: the next event stream begins a new screen.
        sentFirst = first;
        for (const item of arrived.keys()) if (item < first || item >= first + cells.length) arrived.delete(item);
    }
    sending = false;
}

list.addEventListener("scroll", () => requestAnimationFrame(scrolled));
let resizing = null;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(open, 200); });
list.focus({ focusVisible: false });  // So that the keys scroll at once.
open();
