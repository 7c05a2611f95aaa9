// SPDX-License-Identifier: Apache-2.0
// The official clients of the Model Context Protocol against a service: carries out the steps that come as JSON on standard
// input and writes what came of each, as one JSON array.
//   node client.mjs sdk|client|client-newest URL TOKEN
// A step: {"list": true}, {"ping": true}, {"call": ARGUMENTS, "tool": NAME, "times": N, "abort_ms": N}. `times` calls go out at once.
import { text } from "node:stream/consumers";

const [kind, url, token] = process.argv.slice(2);
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
const me = { name: "weir-tests", version: "1" };

async function connected() {
  if (kind === "sdk") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(me);
    const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
    await client.connect(transport);
    return { client, version: transport.protocolVersion };
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const mode = kind === "client-newest" ? "auto" : "legacy";
  const client = new Client(me, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return { client, version: client.getNegotiatedProtocolVersion() };
}

// What is thrown is an outcome like any other.
async function outcome(promise) {
  try {
    return await promise;
  } catch (e) {
    return { thrown: { name: e.constructor.name, code: e.code ?? null, status: e.status ?? e.data?.status ?? null, message: String(e.message) } };
  }
}

async function call(client, step) {
  const options = { timeout: 110_000 };
  if (step.abort_ms) options.signal = AbortSignal.timeout(step.abort_ms);
  const params = { name: step.tool ?? "run_python", arguments: step.call };
  return kind === "sdk" ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

async function carryOut(client, step) {
  if (step.list) return outcome(client.listTools());
  if (step.ping) return outcome(client.ping());
  return Promise.all(Array.from({ length: step.times ?? 1 }, () => outcome(call(client, step))));
}

const steps = JSON.parse(await text(process.stdin));
const results = [];
const made = await outcome(connected());
if (made.thrown) {
  results.push(made);
} else {
  const { client, version } = made;
  results.push({ version, server: client.getServerVersion(), capabilities: client.getServerCapabilities(), instructions: client.getInstructions() });
  for (const step of steps) results.push(await carryOut(client, step));
  await outcome(client.close());
}
process.stdout.write(JSON.stringify(results));
