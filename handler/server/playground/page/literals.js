// Values as other languages write them.

import { pieces } from "./media.js";

const STEP = "    ";

/** What is written as it is. */
export class Source {
  constructor(text) {
    this.text = text;
  }
}

/** A value that JSON can hold, as Python writes it, on several lines where it is long. */
export function python(value, indent = "") {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (value instanceof Source) return value.text;
  if (typeof value !== "object") return typeof value === "string" ? pythonText(value) : String(value);
  const list = Array.isArray(value);
  const inner = indent + STEP;
  const parts = list
    ? value.map((one) => python(one, inner))
    : Object.entries(value).map(([name, one]) => `${pythonText(name)}: ${python(one, inner)}`);
  const [open, close] = list ? "[]" : "{}";
  const short = open + parts.join(", ") + close;
  if (short.length + indent.length <= 80 && !short.includes("\n")) return short;
  return `${open}\n${parts.map((part) => `${inner}${part},\n`).join("")}${indent}${close}`;
}

/** JSON's text is Python's but for surrogates, which come in pairs there. A file's data is read from it. */
function pythonText(text) {
  const parts = [...pieces(text)].map((one) =>
    typeof one === "string" ? JSON.stringify(one) : `b64encode(Path(${JSON.stringify(one.name)}).read_bytes()).decode()`,
  );
  return parts.join(" + ") || '""';
}

/** Arguments of a call, a line each, by name. */
export const pythonArguments = (given) =>
  Object.entries(given)
    .map(([name, value]) => `${STEP}${name}=${python(value, STEP)},\n`)
    .join("");

/** A text as a shell's here-document, which files' data is read into. */
export function heredoc(text) {
  const parts = [...pieces(text)].map((one) =>
    typeof one === "string" ? one.replace(/[\\$`]/g, "\\$&") : `$(base64 < ${shell(one.name)} | tr -d '\\n')`,
  );
  return `<<BODY\n${parts.join("")}\nBODY`;
}

/** A text as a shell's word. */
export const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
