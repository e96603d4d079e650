// Images, audio and videos in requests.
//
// A file's data would be too long to edit: in the request's text stands a word for it, as <1: speech.wav, 1.2 MiB>, in
// whose place it is sent.

import { element, sizeOf } from "./page.js";

const LONGEST_SIDE = 1024;
const QUALITY = 0.85;
const WORD = /<\d+: [^<>]*>/g;
/** What several of a kind are called. */
const KINDS = { image: "images", audio: "audio", video: "videos" };

/** By its word, each file: {word, name, kind, blob, url}; the URL shows it. */
const held = new Map();

/** Takes a file in, images as a JPEG that is no larger than models look at. */
export async function hold(file, kind) {
  const blob = kind === "image" ? await scaled(file) : file;
  // In characters that JSON has in one way only.
  const word = `<${held.size + 1}: ${file.name.replace(/[^\w .-]/g, "_")}, ${sizeOf(blob.size)}>`;
  const taken = { word, name: file.name, kind, blob, url: URL.createObjectURL(blob) };
  held.set(word, taken);
  return taken;
}

/** A picture has a pixel at least, however narrow it was. */
const side = (length) => Math.max(1, Math.round(length));

async function scaled(file) {
  const image = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_SIDE / Math.max(image.width, image.height));
  const canvas = element("canvas", { width: side(image.width * scale), height: side(image.height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/jpeg", QUALITY));
}

/** A text in pieces: those without a word as they are, and in place of words their files. */
export function* pieces(text) {
  let from = 0;
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (!held.has(word)) continue;
    if (index > from) yield text.slice(from, index);
    yield held.get(word);
    from = index + word.length;
  }
  if (from < text.length) yield text.slice(from);
}

export const filesIn = (text) => [...pieces(text)].filter((one) => typeof one !== "string");

/** The text as it is sent, with the files in base64. */
export async function filled(text) {
  const parts = await Promise.all([...pieces(text)].map((one) => (typeof one === "string" ? one : base64(one.blob))));
  return parts.join("");
}

function base64(blob) {
  const reader = new FileReader();
  return new Promise((done, failed) => {
    reader.addEventListener("load", () => done(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => failed(reader.error));
    reader.readAsDataURL(blob);
  });
}

/** The fields of a form beside its file: texts, by name; what is no text is JSON. */
export function fieldsOf({ entry, body }) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return Object.entries(body).flatMap(([name, value]) => {
    if (name === entry.file || value === null) return [];
    return Array.isArray(value) ? value.map((one) => [`${name.replace("[]", "")}[]`, text(one)]) : [[name, text(value)]];
  });
}

/** How parts of messages are written, by the form that messages have, of {type, data}: its media type, and base64. */
const imageUrl = ({ type, data }) => ({ type: "image_url", image_url: { url: `data:${type};base64,${data}` } });
const inputAudio = ({ type, data }) => ({ type: "input_audio", input_audio: { data, format: type.slice("audio/".length) } });
const videoUrl = ({ type, data }) => ({ type: "video_url", video_url: { url: `data:${type};base64,${data}` } });
const imageBlock = ({ type, data }) => ({ type: "image", source: { type: "base64", media_type: type, data } });
const PARTS = {
  openai: { image: imageUrl, audio: inputAudio, video: videoUrl },
  azure: { image: imageUrl, audio: inputAudio },
  anthropic: { image: imageBlock },
};

/** The kinds that both the model and messages of this form take. */
export const kindsOf = (model, form) => Object.keys(PARTS[form] ?? {}).filter((kind) => model.media[kind] > 0);

/** What they are called together. */
export const namesOf = (kinds) => kinds.map((kind) => KINDS[kind]).join(", ").replace(/, ([^,]*)$/, " and $1");

/** The part for a file. Throws where it is of none of the kinds, or cannot be read. */
export async function partOf(file, kinds, form) {
  const kind = file.type.split("/")[0];
  if (!kinds.includes(kind)) throw new Error(`${file.name} is none of what the model takes: ${namesOf(kinds)}.`);
  const ending = /\.(\w+)$/.exec(file.name)?.[1].toLowerCase();
  try {
    const { word, blob } = await hold(file, kind);
    const type = kind === "audio" && ending ? `audio/${ending}` : blob.type;
    return PARTS[form][kind]({ type, data: word });
  } catch (error) {
    throw new Error(`${file.name} cannot be read: ${error.message}`);
  }
}

/** What a part holds, in whatever form: {kind, type, data}; null of text, of addresses and of what is not known. */
export function mediumOf(part) {
  if (part?.input_audio) return { kind: "audio", type: `audio/${part.input_audio.format}`, data: String(part.input_audio.data) };
  const { source } = part ?? {};
  const url = source ? `data:${source.media_type};base64,${source.data}` : (part?.image_url?.url ?? part?.video_url?.url);
  const [, type, kind, data] = /^data:((image|video)\/[^;]+);base64,(.*)$/s.exec(url) ?? [];
  return kind ? { kind, type, data } : null;
}

/** A message's content for messages of another form; what has none there stays as it is, and is refused by its name. */
export function translated(content, form) {
  if (!Array.isArray(content)) return content;
  return content.map((part) => {
    const medium = mediumOf(part);
    const made = PARTS[form]?.[medium?.kind]?.(medium) ?? part;
    return made.type === part.type ? part : made;
  });
}

/** A part as it is seen or heard; what the page has no file of is named. */
export function preview(part) {
  const medium = mediumOf(part);
  const [file] = filesIn(medium?.data ?? "");
  if (file) return player(file);
  if (medium?.kind === "image") return element("img", { src: `data:${medium.type};base64,${medium.data}`, alt: "Image" });
  return element("span", { class: "quiet" }, `[${part?.type}]`);
}

export function player({ kind, name, url }) {
  if (kind === "image") return element("img", { src: url, alt: name, title: name });
  const played = element(kind, { src: url, controls: true, preload: "metadata", "aria-label": name });
  return element("figure", {}, played, element("figcaption", { class: "quiet" }, name));
}

/** A list item of it, with a button that removes it. */
export function removable(shown, name, remove) {
  const button = element("button", { type: "button", class: "plain", "aria-label": `Remove ${name}` }, "Remove");
  button.addEventListener("click", remove);
  return element("li", {}, shown, button);
}

/** What of the server's limits a request would exceed, by its text; empty: nothing that the page knows of. */
export function excess(text, { media, limits }) {
  const files = filesIn(text);
  const inText = files.reduce((sum, { word, blob }) => sum + 4 * Math.ceil(blob.size / 3) - new Blob([word]).size, 0);
  const told = [tooLong("The request", new Blob([text]).size + inText, limits, "max_body_bytes")];
  for (const [kind, name] of Object.entries(KINDS)) {
    const blobs = files.filter((one) => one.kind === kind).map(({ blob }) => blob);
    if (blobs.length > media[kind]) told.push(`The model takes ${atMost(media[kind], kind)} in a request, and there would be ${blobs.length}.`);
    const size = blobs.reduce((sum, blob) => sum + blob.size, 0);
    told.push(tooLong(`What is attached of ${name}`, size, limits, `max_${kind}_bytes`));
  }
  return told.find((one) => one !== "") ?? "";
}

export function tooLong(what, size, limits, option) {
  if (size <= limits[option]) return "";
  return `${what} would have ${sizeOf(size)}, and the server takes ${sizeOf(limits[option])} (option.${option}).`;
}

/** As "up to 2 images". */
export const atMost = (most, kind) => `${most === 1 ? "one" : `up to ${most}`} ${kind === "audio" ? "audio file" : kind}${most === 1 ? "" : "s"}`;
