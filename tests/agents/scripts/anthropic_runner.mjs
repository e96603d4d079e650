// Anthropic's tool runner for TypeScript, through one loop; as anthropic_runner.py, which says what LOOP is.
//
// usage: anthropic_runner.mjs EXAMPLE LOOP NODE_MODULES
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [example, given, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Anthropic } = require('@anthropic-ai/sdk');
const { mcpTools } = require('@anthropic-ai/sdk/helpers/beta/mcp');
const { betaZodTool } = require('@anthropic-ai/sdk/helpers/beta/zod');
const { z } = require('zod');

const loop = JSON.parse(given);
const files = { a: '42', b: '43', long: 'word '.repeat(70000) };
const nothing = z.object({});
const source = { type: 'base64', media_type: 'image/png', data: loop.picture };
const tool = (name, description, inputSchema, run) => betaZodTool({ name, description, inputSchema, run });
const tools = [
  tool('read', 'Reads a file.', z.object({ file: z.string() }), ({ file }) => files[file]),
  tool('fail', 'Fails.', nothing, () => {
    throw new Error('It is broken.');
  }),
  tool('look', 'Looks at the picture.', nothing, () => [{ type: 'text', text: 'Here it is.' }, { type: 'image', source }]),
];
const late = tool('late', 'Comes late.', z.object({ word: z.string() }), ({ word }) => `${word} at last`);

// A client of MCP over a process's standard input and output, of the form that mcpTools takes.
function mcpClient([command, ...args]) {
  const server = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const waiting = new Map();
  createInterface({ input: server.stdout }).on('line', (line) => {
    const { id, result } = JSON.parse(line);
    waiting.get(id)(result);
  });
  const ask = (method, params) =>
    new Promise((resolve) => {
      const id = waiting.size + 1;
      waiting.set(id, resolve);
      server.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\n');
    });
  return { ask, callTool: (params) => ask('tools/call', params), close: () => server.stdin.end() };
}

const client = loop.mcp && mcpClient(loop.mcp);
if (client) {
  await client.ask('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'test', version: '1' } });
  tools.push(...mcpTools((await client.ask('tools/list', {})).tools, client));
}
const body = readFileSync(example, 'utf8').replace(/^import .*$/gm, '') + '\nreturn runner;';
const makes = new Function('Anthropic', 'tools', 'messages', 'stream', body);
const shown = { replies: [] };
let messages = [];
try {
  for (const content of loop.questions) {
    messages.push({ role: 'user', content });
    const runner = makes(Anthropic, tools, messages, loop.stream);
    for await (const item of runner) {
      shown.replies.push((loop.stream ? await item.finalMessage() : item).content);
      if (loop.late && shown.replies.length === 1) runner.addTools(late);
    }
    messages = [...runner.params.messages];
  }
} catch (error) {
  if (!(error instanceof Anthropic.APIError)) throw error;
  Object.assign(shown, { status: error.status, error: error.message });
}
client?.close();
console.log(JSON.stringify(shown));
