// The request being edited: one text, of which the form and the code show what they can.

import { boto3, client, curl, headersOf } from "./code.js";
import { keyHeaders, hasKey } from "./key.js";
import { fieldsOf, filesIn, filled, translated } from "./media.js";
import { byId, putAt, settingsOf, valueAt } from "./page.js";

const write = (body) => JSON.stringify(body, null, 2);

export class Editor {
  /** `onChange` is called when the request is another one; with true where the form does not show it yet. */
  constructor(model, base, onChange) {
    Object.assign(this, { model, base, onChange, session: "", flag: true, entry: null, body: null, text: "" });
    byId("json").addEventListener("input", () => this.setText(byId("json").value));
    for (const button of document.querySelectorAll("button[data-copies]")) {
      button.addEventListener("click", () => copy(button));
    }
  }

  /** Shows another route's example. Between chats the conversation stays, and a file that was chosen. */
  choose(entry) {
    const messages = this.body?.messages;
    const { file } = this;
    this.entry = entry;
    const body = structuredClone(entry.body);
    const said = (one) => typeof one?.content === "string" || Array.isArray(one?.content);
    if (Array.isArray(messages) && Array.isArray(body.messages) && messages.every(said)) {
      body.messages = messages.map((one) => ({ ...one, content: translated(one.content, entry.media) }));
    }
    if (file && entry.file) body[entry.file] = file.word;
    if (entry.stream) for (const [path, value] of settingsOf(entry.stream)) putAt(body, path, value);
    this.take(body);
    this.onChange(true);
  }

  take(body) {
    this.body = body;
    this.text = write(body);
    byId("json").value = this.text;
    this.fault("");
  }

  setText(text) {
    this.text = text;
    try {
      const body = JSON.parse(text);
      this.body = body !== null && typeof body === "object" && !Array.isArray(body) ? body : null;
      this.fault(this.body === null ? "The form and clients need an object. It is sent as it is." : "");
    } catch (error) {
      this.body = null;
      this.fault(`Not JSON: ${error.message}. It is sent as it is.`);
    }
    this.onChange(true);
  }

  /** Changes the body; `again`: the form must be made anew for it. */
  change(mutate, again = false) {
    mutate(this.body);
    this.take(this.body);
    this.onChange(again);
  }

  put(path, value) {
    this.change((body) => putAt(body, path, value));
  }

  get streamed() {
    const { entry, body } = this;
    if (entry.stream) return body?.stream === true;
    return entry.stream_path === entry.path || (entry.stream_path !== "" && this.flag);
  }

  setStreamed(on) {
    const { entry } = this;
    if (!entry.stream) {
      this.flag = on;
      this.onChange(false);
    } else this.turn(entry.stream, on);
  }

  /** The file for which the request is a form, or undefined. */
  get file() {
    const word = this.entry?.file ? this.body?.[this.entry.file] : "";
    return filesIn(String(word)).find((file) => file.word === word);
  }

  /** Whether the body has all that a switch sets, and setting or taking it. */
  has(added) {
    return [...settingsOf(added)].every(([path, value]) => JSON.stringify(valueAt(this.body, path)) === JSON.stringify(value));
  }

  turn(added, on) {
    this.change((body) => {
      for (const [path, value] of settingsOf(added)) putAt(body, path, on ? structuredClone(value) : undefined);
    }, true);
  }

  /** The request as code.js and run.js take it. */
  get sent() {
    const { entry, body, text, streamed, session, base } = this;
    const other = streamed && entry.stream_path !== "";
    return {
      entry, body, text, streamed, session, base,
      path: other ? entry.stream_path : entry.path,
      attributes: other ? entry.stream_attributes : entry.attributes,
      key: hasKey(),
      file: this.file,
    }; // prettier-ignore
  }

  /** What is to be sent, with the files in it. */
  async request() {
    const { sent, file } = this;
    const query = sent.entry.query ? `?${sent.entry.query}` : "";
    const headers = { ...headersOf(sent), ...keyHeaders() };
    let body;
    if (file) {
      // The browser says the type, with the boundary.
      body = new FormData();
      for (const [name, text] of fieldsOf(sent)) body.append(name, text);
      body.append(sent.entry.file, file.blob, file.name);
    } else {
      headers["Content-Type"] = "application/json";
      body = await filled(sent.text);
    }
    return { url: `${this.base}${sent.path.slice(1)}${query}`, headers, body, streamed: sent.streamed };
  }

  showCode() {
    const { sent } = this;
    byId("code-curl").textContent = curl(sent);
    byId("code-python").textContent = client(sent);
    byId("code-boto3").textContent = boto3(sent);
  }

  fault(text) {
    byId("json-fault").textContent = text;
    if (text) byId("json").setAttribute("aria-invalid", "true");
    else byId("json").removeAttribute("aria-invalid");
  }
}

async function copy(button) {
  const { textContent } = byId(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId(button.dataset.copies));
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}
