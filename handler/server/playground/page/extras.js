// What only some models have: images, adapters, sessions.

import { keyHeaders } from "./key.js";
import { element, putAt } from "./page.js";

const LONGEST_SIDE = 1024;
const QUALITY = 0.85;
const SESSION = "X-Amzn-SageMaker-Session-Id";

/** Adds images to the last message of the user, as data URLs: nothing has to be fetched. */
export function imageField(editor) {
  const input = element("input", { type: "file", accept: "image/*", multiple: true, id: "images" });
  const told = element("p", { class: "quiet", role: "status" });
  input.addEventListener("change", async () => {
    try {
      const urls = await Promise.all([...input.files].map(dataUrl));
      editor.change((body) => urls.forEach((url) => addImage(body, url, editor.entry.images)), true);
    } catch (error) {
      told.textContent = `The image cannot be read: ${error.message}`;
    }
  });
  const shown = imagesOf(editor.body).map(({ at, part, url }, count) => {
    const remove = element("button", { type: "button", class: "plain", "aria-label": `Remove image ${count + 1}` }, "Remove");
    remove.addEventListener("click", () => editor.change((body) => body.messages[at].content.splice(part, 1), true));
    return element("li", {}, element("img", { src: url, alt: `Image ${count + 1}` }), remove);
  });
  const most = editor.model.images === 1 ? "one" : `up to ${editor.model.images}`;
  const label = element("label", { htmlFor: "images" }, "Images", element("span", { class: "quiet" }, ` ${most} in a request`));
  return element("div", { class: "field" }, label, input, element("ul", { class: "images" }, ...shown), told);
}

/** The image as a JPEG that is no larger than models look at. */
async function dataUrl(file) {
  const image = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_SIDE / Math.max(image.width, image.height));
  const canvas = element("canvas", { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", QUALITY);
}

function addImage(body, url, form) {
  const message = body.messages.findLast((one) => one.role === "user");
  if (!message) throw new Error("there is no message of the user");
  if (!Array.isArray(message.content)) message.content = [{ type: "text", text: message.content ?? "" }];
  const [, type, data] = /^data:([^;]+);base64,(.*)$/.exec(url);
  message.content.push(
    form === "anthropic"
      ? { type: "image", source: { type: "base64", media_type: type, data } }
      : { type: "image_url", image_url: { url } },
  );
}

const imagesOf = (body) =>
  body.messages.flatMap((message, at) =>
    (Array.isArray(message?.content) ? message.content : []).flatMap((one, part) => {
      const source = one?.source;
      const url = source ? `data:${source.media_type};base64,${source.data}` : one?.image_url?.url;
      // Others the page may not fetch.
      return url?.startsWith("data:image/") ? [{ at, part, url }] : [];
    }),
  );

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
