// Values as other languages write them.

const STEP = "    ";

/** A value that JSON can hold, as Python writes it, on several lines where it is long. */
export function python(value, indent = "") {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
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

/** JSON's text is Python's but for surrogates, which come in pairs there. */
const pythonText = (text) => JSON.stringify(text);

/** Arguments of a call, a line each, by name. */
export const pythonArguments = (given) =>
  Object.entries(given)
    .map(([name, value]) => `${STEP}${name}=${python(value, STEP)},\n`)
    .join("");

/** A text as a shell's word. */
export const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
