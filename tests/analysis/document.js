// As much of a browser's document as the report's script uses. Everything is held to what it may be:
// what the script asks for beyond it is an error.
"use strict";

const escaped = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

class Text {
  constructor(text) { this.text = text; }
  markup() { return escaped(this.text); }
}

class Element {
  constructor(tag) {
    if (!/^[a-z][a-z0-9]*$/.test(tag)) throw new Error(`no tag: ${tag}`);
    Object.assign(this, { tag, attributes: {}, children: [], listeners: {}, dataset: {} });
  }
  setAttribute(name, value) {
    if (!/^[\w:-]+$/.test(name) || name.startsWith("on")) throw new Error(`no attribute: ${name}`);
    this.attributes[name] = String(value);
  }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  append(...children) { this.children.push(...children.map((child) => child instanceof Element ? child : new Text(String(child)))); }
  replaceChildren(...children) { this.children = []; this.append(...children); }
  focus() { document.focused = this; }
  find(test) {
    if (test(this)) return this;
    for (const child of this.children) {
      const found = child instanceof Element && child.find(test);
      if (found) return found;
    }
    return null;
  }
  markup() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${escaped(value)}"`).join("");
    return `<${this.tag}${attributes}>${this.children.map((child) => child.markup()).join("")}</${this.tag}>`;
  }
}

class URLSearchParams {
  constructor(from) {
    const parts = typeof from === "string" ? from.split("&").filter(Boolean).map((part) => part.split("=").map((each) => decodeURIComponent(each.replace(/\+/g, " "))))
      : from instanceof URLSearchParams ? [...from.values] : Object.entries(from || {}).map(([key, value]) => [key, String(value)]);
    this.values = new Map(parts);
  }
  get(key) { return this.values.has(key) ? this.values.get(key) : null; }
  set(key, value) { this.values.set(key, String(value)); }
  delete(key) { this.values.delete(key); }
  toString() { return [...this.values].map((pair) => pair.map(encodeURIComponent).join("=")).join("&"); }
}

const body = new Element("body");
body.append(new Element("nav"), new Element("main"));
const location = { hash: "" };
const history = { replaceState(state, title, address) { location.hash = address; } };
const document = {
  body,
  querySelector: (tag) => body.find((element) => element.tag === tag),
  getElementById: (id) => body.find((element) => element.attributes.id === id),
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
