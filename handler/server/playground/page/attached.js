// What is attached to a message that is being written: images, audio, videos.

import { atMost, excess, kindsOf, namesOf, partOf, preview, removable } from "./media.js";
import { byId } from "./page.js";

export class Attached {
  /** `whole` gives the messages with one of these parts, as they would be sent. */
  constructor({ model }, { media }, whole) {
    const kinds = kindsOf(model, media);
    Object.assign(this, { model, form: media, kinds, whole, parts: [], reading: Promise.resolve() });
    if (kinds.length === 0) return;
    byId("attach").textContent = `Attach ${namesOf(kinds)}`;
    byId("attach").title = `${kinds.map((kind) => atMost(model.media[kind], kind)).join(", ")} in a request`;
    byId("attach").hidden = false;
    byId("attach").addEventListener("click", () => byId("files").click());
    byId("files").accept = kinds.map((kind) => `${kind}/*`).join(",");
    byId("files").addEventListener("change", () => {
      this.add([...byId("files").files]);
      // The same one may be chosen again.
      byId("files").value = "";
    });
    const talk = byId("talk");
    talk.addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
    talk.addEventListener("drop", (event) => this.accept(event, event.dataTransfer));
    byId("message").addEventListener("paste", (event) => this.accept(event, event.clipboardData));
  }

  /** Takes the files of what is dropped or pasted, if it is no text. */
  accept(event, { files, types }) {
    if (files.length === 0 || types.includes("text/plain")) return;
    event.preventDefault();
    this.add([...files]);
  }

  /** Why the last file that was added is not attached; empty: it is. */
  get fault() {
    return byId("attach-fault").textContent;
  }

  /** Adds files, one after the other; `reading` is fulfilled when all have been read. */
  add(files) {
    byId("attach-fault").textContent = "";
    for (const file of files) this.reading = this.reading.then(() => this.read(file));
  }

  async read(file) {
    try {
      const parts = [...this.parts, await partOf(file, this.kinds, this.form)];
      const fault = excess(JSON.stringify(this.whole(parts)), this.model);
      if (fault) throw new Error(`${file.name} is not attached. ${fault}`);
      this.put(parts);
    } catch (error) {
      byId("attach-fault").textContent = error.message;
    }
  }

  /** These are attached. */
  put(parts) {
    this.parts = parts;
    const items = parts.map((part, at) => removable(preview(part), `file ${at + 1}`, () => this.put(parts.filter((one) => one !== part))));
    byId("attached").replaceChildren(...items);
  }

  /** What is attached, which is no longer. */
  take() {
    const { parts } = this;
    this.put([]);
    byId("attach-fault").textContent = "";
    return parts;
  }
}
