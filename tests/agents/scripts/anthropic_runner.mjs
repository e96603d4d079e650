// Anthropic's tool runner for TypeScript, through loops; anthropic_runner.py says of what form they are.
//
// usage: anthropic_runner.mjs NODE_MODULES EXAMPLE LOOPS PICTURE MCP...
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [modules, example, loops, picture, ...command] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Anthropic } = require('@anthropic-ai/sdk');
const { mcpTools } = require('@anthropic-ai/sdk/helpers/beta/mcp');
const { betaZodTool } = require('@anthropic-ai/sdk/helpers/beta/zod');
const { z } = require('zod');

const files = { a: '42', b: '43', long: 'word '.repeat(70000) };
const nothing = z.object({});
const source = { type: 'base64', media_type: 'image/png', data: picture };
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

const client = mcpClient(command);
const clientInfo = { name: 'test', version: '1' };
await client.ask('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo });
const served = mcpTools((await client.ask('tools/list', {})).tools, client);
const body = readFileSync(example, 'utf8').replace(/^import .*$/gm, '') + '\nreturn runner;';
const makes = new Function('Anthropic', 'tools', 'messages', 'stream', body);

async function run(loop) {
  const replies = [];
  let messages = [];
  try {
    for (const content of loop.questions) {
      messages.push({ role: 'user', content });
      const runner = makes(Anthropic, loop.mcp ? [...tools, ...served] : tools, messages, loop.stream);
      for await (const item of runner) {
        replies.push((loop.stream ? await item.finalMessage() : item).content);
        if (loop.late && replies.length === 1) runner.addTools(late);
      }
      messages = [...runner.params.messages];
    }
  } catch (error) {
    if (!(error instanceof Anthropic.APIError)) throw error;
    return { replies, status: error.status, error: error.message };
  }
  return { replies };
}

const shown = {};
for (const [name, loop] of Object.entries(JSON.parse(loops))) shown[name] = await run(loop);
client.close();
console.log(JSON.stringify(shown));
