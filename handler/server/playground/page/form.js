// The request as a form: what of the body an example says that it has, and its messages.

import { adapterField, fileField, mediaField, sessionField } from "./extras.js";
import { kindsOf } from "./media.js";
import { element, valueAt } from "./page.js";

const ROLES = ["system", "user", "assistant", "tool"];

/** Makes the form for what the editor has. */
export function showForm(place, editor) {
  const { body, entry } = editor;
  if (body === null) {
    place.replaceChildren(element("p", { class: "quiet" }, "The body is no JSON object: edit it as JSON."));
    return;
  }
  const texts = entry.texts.map((path) => textField(editor, path));
  const numbers = entry.numbers.map((path) => numberField(editor, path));
  const switches = entry.switches.map((one, at) => switchField(editor, one, at));
  const fields = [
    entry.file ? fileField(editor) : null,
    ...texts,
    Array.isArray(body.messages) ? conversation(editor) : null,
    Array.isArray(body.messages) && kindsOf(editor.model, entry.media).length > 0 ? mediaField(editor) : null,
    numbers.length > 0 ? element("div", { class: "numbers" }, ...numbers) : null,
    switches.length > 0 ? element("div", { class: "switches" }, ...switches) : null,
    editor.model.adapters.length > 0 ? adapterField(editor) : null,
    editor.model.sessions ? sessionField(editor) : null,
  ].filter((one) => one !== null);
  const empty = element("p", { class: "quiet" }, "There is no form for this one: edit it as JSON.");
  const focused = document.activeElement?.id;
  place.replaceChildren(...(fields.length > 0 ? fields : [empty]));
  if (focused) document.getElementById(focused)?.focus();
}

const titleOf = (path) => {
  const name = path.split(".").at(-1).replaceAll("_", " ");
  return name[0].toUpperCase() + name.slice(1);
};

const idOf = (path) => `field-${path.replaceAll(".", "-")}`;

function textField(editor, path) {
  const value = valueAt(editor.body, path);
  const list = Array.isArray(value) && value.every((one) => typeof one === "string");
  const plain = list || typeof value === "string" || value === undefined || value === null;
  const area = element("textarea", {
    id: idOf(path),
    rows: list ? Math.max(2, value.length) : path === "system" || path === "instructions" ? 1 : 3,
    value: list ? value.join("\n") : typeof value === "string" ? value : "",
    disabled: !plain,
    spellcheck: false,
  });
  area.addEventListener("input", () => {
    const optional = area.value === "" && editor.entry.body[path] === undefined;
    editor.put(path, list ? area.value.split("\n") : optional ? undefined : area.value);
  });
  const note = list ? "one a line" : plain ? "" : "not a text: edit it as JSON";
  const label = element("label", { htmlFor: area.id }, titleOf(path), note ? element("span", { class: "quiet" }, ` ${note}`) : null);
  return element("div", { class: "field" }, label, area);
}

function numberField(editor, path) {
  const value = valueAt(editor.body, path);
  const input = element("input", {
    type: "number",
    id: idOf(path),
    step: /temperature|top_p/.test(path) ? "0.1" : "1",
    placeholder: "default",
    value: typeof value === "number" ? String(value) : "",
  });
  input.addEventListener("input", () => editor.put(path, input.value === "" ? undefined : Number(input.value)));
  return element("div", { class: "field" }, element("label", { htmlFor: input.id }, titleOf(path)), input);
}

function switchField(editor, { title, set }, at) {
  const box = element("input", { type: "checkbox", id: `switch-${at}`, checked: editor.has(set) });
  box.addEventListener("change", () => editor.turn(set, box.checked));
  return element("label", { class: "switch" }, box, title);
}

function conversation(editor) {
  const messages = editor.body.messages.map((message, at) => messageField(editor, message, at));
  const add = element("button", { type: "button", class: "plain" }, "Add a message");
  add.addEventListener("click", () => {
    const last = editor.body.messages.at(-1)?.role;
    addMessages(editor, [{ role: last === "user" ? "assistant" : "user", content: "" }]);
  });
  const group = { class: "conversation", role: "group", "aria-label": "Messages" };
  return element("div", group, ...messages, add);
}

/** Adds messages and goes to the last one. */
export function addMessages(editor, added) {
  editor.change((body) => body.messages.push(...added), true);
  document.getElementById(`message-${editor.body.messages.length - 1}`)?.focus();
}

function messageField(editor, message, at) {
  const name = `message ${at + 1}`;
  const role = element("select", { "aria-label": `Role of ${name}` });
  const roles = ROLES.includes(message?.role) ? ROLES : [...ROLES, message?.role];
  role.append(...roles.map((one) => element("option", { value: one, selected: one === message?.role }, one)));
  role.addEventListener("change", () => editor.put(`messages.${at}.role`, role.value));
  const remove = element("button", { type: "button", class: "plain", "aria-label": `Remove ${name}` }, "Remove");
  remove.addEventListener("click", () => editor.change((body) => body.messages.splice(at, 1), true));
  const parts = Array.isArray(message?.content) ? message.content : null;
  const part = parts?.findIndex((one) => one?.type === "text") ?? -1;
  const text = parts ? (parts[part]?.text ?? "") : (message?.content ?? "");
  const area = element("textarea", {
    id: `message-${at}`,
    rows: Math.min(8, Math.max(2, String(text).split("\n").length)),
    value: String(text),
    disabled: parts !== null && part < 0,
    spellcheck: false,
    "aria-label": name[0].toUpperCase() + name.slice(1),
  });
  area.addEventListener("input", () => {
    editor.put(parts ? `messages.${at}.content.${part}.text` : `messages.${at}.content`, area.value);
  });
  return element("div", { class: "message" }, element("div", { class: "bar-of-message" }, role, remove), area);
}
