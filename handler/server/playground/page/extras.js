// What only some models and routes have: media in messages, a file, adapters, sessions.

import { keyHeaders } from "./key.js";
import { atMost, excess, hold, kindsOf, mediumOf, namesOf, partOf, player, preview, removable, tooLong } from "./media.js";
import { element, putAt, sizeOf } from "./page.js";

const SESSION = "X-Amzn-SageMaker-Session-Id";

/** Adds images, audio and videos to the last message of the user. */
export function mediaField(editor) {
  const { model, entry, body } = editor;
  const kinds = kindsOf(model, entry.media);
  const accept = kinds.map((kind) => `${kind}/*`).join(",");
  const input = element("input", { type: "file", accept, multiple: true, id: "media", "aria-describedby": "media-told" });
  const told = element("p", { class: "fault", role: "status", id: "media-told" }, excess(editor.text, model));
  input.addEventListener("change", async () => {
    try {
      const parts = await Promise.all([...input.files].map((file) => partOf(file, kinds, entry.media)));
      editor.change((sent) => addParts(sent, parts), true);
    } catch (error) {
      told.textContent = error.message;
    }
  });
  const shown = mediaOf(body).map(({ at, part, index }, count) =>
    removable(preview(part), `file ${count + 1}`, () => editor.change((sent) => sent.messages[at].content.splice(index, 1), true)),
  );
  const most = kinds.map((kind) => atMost(model.media[kind], kind)).join(", ");
  const names = namesOf(kinds);
  const title = names[0].toUpperCase() + names.slice(1);
  const label = element("label", { htmlFor: "media" }, title, element("span", { class: "quiet" }, ` ${most} in a request`));
  return element("div", { class: "field" }, label, input, element("ul", { class: "media" }, ...shown), told);
}

function addParts(body, parts) {
  const message = body.messages.findLast((one) => one.role === "user");
  if (!message) throw new Error("There is no message of the user.");
  if (!Array.isArray(message.content)) message.content = [{ type: "text", text: message.content ?? "" }];
  message.content.push(...parts);
}

const mediaOf = (body) =>
  body.messages.flatMap((message, at) =>
    (Array.isArray(message?.content) ? message.content : []).flatMap((part, index) => (mediumOf(part) ? [{ at, part, index }] : [])),
  );

/** The file that is to be written down, with which the request is a form; without one it is the example's. */
export function fileField(editor) {
  const { entry, model } = editor;
  const { limits } = model;
  const { file } = editor;
  const input = element("input", { type: "file", accept: "audio/*,video/*", id: "file", "aria-describedby": "file-told" });
  const put = (value) => editor.change((body) => (body[entry.file] = value), true);
  input.addEventListener("change", async () => input.files.length > 0 && put((await hold(input.files[0], "audio")).word));
  const shown = file && removable(player(file), file.name, () => put(entry.body[entry.file]));
  if (file) {
    // The field is a new one.
    const chosen = new DataTransfer();
    chosen.items.add(file.blob);
    input.files = chosen.files;
  }
  const own = editor.body[entry.file] === entry.body[entry.file] ? "Until one is chosen, a tenth of a second of silence is sent." : "";
  const fault = file ? tooLong("The file", file.blob.size, limits, "max_audio_bytes") : "";
  const told = element("p", { class: fault ? "fault" : "quiet", role: "status", id: "file-told" }, fault || own);
  const most = element("span", { class: "quiet" }, ` audio or a video, up to ${sizeOf(limits.max_audio_bytes)} (option.max_audio_bytes)`);
  const label = element("label", { htmlFor: "file" }, "File", most);
  return element("div", { class: "field" }, label, input, element("ul", { class: "media" }, shown), told);
}

export function adapterField(editor) {
  const { adapter, body } = editor.entry;
  const select = element("select", { id: "adapter" });
  const given = editor.body[adapter];
  const names = editor.model.adapters;
  select.append(
    element("option", { value: "" }, "none, the model itself"),
    ...names.map((name) => element("option", { value: name, selected: name === given }, name)),
  );
  select.addEventListener("change", () => editor.change((sent) => putAt(sent, adapter, select.value || body[adapter])));
  return element("div", { class: "field" }, element("label", { htmlFor: "adapter" }, "Adapter"), select);
}

export function sessionField(editor) {
  const told = element("p", { class: "quiet", role: "status" });
  const button = element("button", { type: "button", class: "plain" });
  const show = (text) => {
    button.textContent = editor.session ? "Close it" : "New session";
    told.textContent = text ?? (editor.session || "Requests are in no session.");
  };
  button.addEventListener("click", async () => {
    try {
      if (editor.session) await close(editor);
      else await open(editor);
      show();
    } catch (error) {
      show(error.message);
    }
    editor.onChange(false);
  });
  show();
  return element("div", { class: "field session" }, element("p", { class: "label" }, "Session"), told, button);
}

async function ask(editor, requestType, headers) {
  const response = await fetch(`${editor.base}invocations`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers, ...keyHeaders() },
    body: JSON.stringify({ requestType }),
  });
  if (!response.ok) throw new Error(`The server answered ${response.status}: ${await response.text()}`);
  return response;
}

async function open(editor) {
  const response = await ask(editor, "NEW_SESSION", {});
  editor.session = (response.headers.get(SESSION) ?? "").split(";")[0];
}

async function close(editor) {
  const { session } = editor;
  editor.session = "";
  await ask(editor, "CLOSE", { [SESSION]: session });
}
