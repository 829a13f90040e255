// Runs networks beside the page, so that drawing stays smooth: ONNX Runtime Web, in WebAssembly, with one thread.

const RUNTIME = "./onnxruntime/ort.js";
const LOADER = "./onnxruntime/ort-wasm.js"; // of its WebAssembly
const BINARY = "./onnxruntime/ort-wasm.wasm";

let runtime = null; // promise of the runtime
const sessions = new Map(); // promise of a session by the address of its graph

// A request is { id, graph, inputs }, inputs by name as { type, dims, data }; without them the graph is loaded and nothing
// else. The answer has outputs by name, or what was wrong.
onmessage = async ({ data: { id, graph, inputs } }) => {
  try {
    const session = await sessionOf(graph);
    postMessage({ id, outputs: inputs ? await run(await runtime, session, inputs) : {} });
  } catch (error) {
    postMessage({ id, problem: error.message });
  }
};

async function start() {
  try {
    const ort = await import(RUNTIME).catch(() => {
      throw new Error(`${name(RUNTIME)} could not be loaded. Is it on this web server?`);
    });
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = { mjs: new URL(LOADER, import.meta.url).href };
    ort.env.wasm.wasmBinary = await fetched(BINARY); // whatever type the server gives it
    return ort;
  } catch (error) {
    runtime = null; // the next request tries again
    throw error;
  }
}

function sessionOf(graph) {
  if (!sessions.has(graph)) {
    const opened = open(graph);
    opened.catch(() => sessions.delete(graph));
    sessions.set(graph, opened);
  }
  return sessions.get(graph);
}

async function open(graph) {
  const [ort, content] = await Promise.all([(runtime ??= start()), fetched(graph)]);
  try {
    return await ort.InferenceSession.create(content, { executionProviders: ["wasm"] });
  } catch (error) {
    throw new Error(`${name(graph)} cannot be run in this browser: ${error.message}`);
  }
}

async function run(ort, session, inputs) {
  const feeds = Object.entries(inputs).map(([key, { type, dims, data }]) => [key, new ort.Tensor(type, data, dims)]);
  const outputs = await session.run(Object.fromEntries(feeds));
  return Object.fromEntries(Object.entries(outputs).map(([key, { dims, data }]) => [key, { dims, data }]));
}

async function fetched(address) {
  const response = await fetch(address).catch(() => null);
  if (!response) throw new Error(`The web server of this page does not answer: ${name(address)} could not be loaded.`);
  if (!response.ok) throw new Error(`${name(address)} is missing on the web server of this page (${response.status}).`);
  return new Uint8Array(await response.arrayBuffer());
}

const name = (address) => address.replace(/^\.\//, "");
