// Answers in the browser: the functions of the server's answers.js, for the page as a folder of files.

import { prepare } from "./prepare.js";

const COLOURS = ["#ff9628", "#288cff", "#3cc864", "#dc50c8"]; // of masks

let known = []; // networks, as models.json describes them
const loaded = new Set(); // those that can be compared

// Networks, and the most bytes of a picture's file.
export async function models() {
  if (typeof WebAssembly !== "object") {
    throw new Error("This browser has no WebAssembly, in which the networks of this page run, or it is switched off.");
  }
  const response = await fetch("models.json", { cache: "no-cache" }).catch(() => null);
  if (!response) throw new Error("The web server of this page does not answer.");
  if (!response.ok) throw new Error(`models.json is missing on the web server of this page (${response.status}).`);
  const { models, largest } = await response.json();
  known = models;
  return { models, largest };
}

// Called when a network is chosen: it begins to load, and after it the others. more is called when another one that was
// left out of a comparison is there.
export async function ready(model, more) {
  for (const one of [model, ...known.filter((other) => other !== model)]) {
    try {
      await Promise.all(Object.values(one.files).map((file) => file && run(file)));
    } catch {
      continue; // the next question about it says why
    }
    if (loaded.has(one)) continue;
    loaded.add(one);
    if (one !== model) more();
  }
}

// See answers.js of the server. Networks that are not loaded yet are left out of the comparison, and the picture as
// the network sees it is not in the answer.
export async function predict({ model, picture, label, invert, compare }) {
  const source = picture instanceof Blob ? await decoded(picture) : picture;
  const prepared = new Map(); // for networks that take the same
  const all = [model, ...(compare ? known.filter((other) => other !== model && loaded.has(other)) : [])];
  const images = all.map((one) => {
    const key = [one.width, one.height, one.channels, one.fit, one.background, one.invert].join();
    if (!prepared.has(key)) prepared.set(key, prepare(source, one, invert));
    return prepared.get(key);
  });
  const [outputs, ...others] = await Promise.all(all.map((one, place) => activate(one, images[place].picture)));
  return {
    ...(await answerOf(model, outputs, label)),
    inverted: images[0].inverted,
    others: others.map((output, place) => opinion(all[place + 1], output)),
  };
}

// See answers.js of the server.
export const draw = ({ model, label, pose }) => drawn(model, model.classes.indexOf(label), pose);

async function answerOf(model, { activation, probability, pose, mask, shares }, label) {
  const chosen = label === null ? mostActive(model, activation.data)[0] : model.classes.indexOf(label);
  const own = Array.from(pose.data.subarray(chosen * model.pose_dim, (chosen + 1) * model.pose_dim));
  return {
    model: model.name,
    classes: mostActive(model, activation.data).map((place) => model.classes[place]),
    activations: byClass(model, activation.data),
    certainty: byClass(model, probability.data),
    looked_at: model.classes[chosen],
    pose: own,
    reconstruction: model.draws ? await drawn(model, chosen, own) : null,
    agreement: shares ? { shares: rowsOf(shares, chosen), ...model.map } : null,
    masks: model.segments ? overlay(model, activation.data, mask) : null,
  };
}

// Shares of the positions in the activation of a class, row by row.
function rowsOf({ dims: [, , rows, columns], data }, label) {
  const row = (place) => Array.from(data.subarray(place * columns, (place + 1) * columns));
  return Array.from({ length: rows }, (_, place) => row(label * rows + place));
}

function opinion(model, { activation, probability }) {
  const chosen = mostActive(model, activation.data);
  return { model: model.name, classes: chosen.map((place) => model.classes[place]), certainty: probability.data[chosen[0]] };
}

// Places of the most active classes, as many as an image shows.
function mostActive(model, activation) {
  const places = [...activation.keys()].sort((one, other) => activation[other] - activation[one]);
  return places.slice(0, model.labels_per_image);
}

const byClass = (model, values) => Object.fromEntries(model.classes.map((name, place) => [name, values[place]]));

// Outputs of a network for a prepared picture.
function activate(model, { width, height, channels, data }) {
  const count = width * height;
  const planes = new Float32Array(count * channels); // one channel after the other
  for (let place = 0; place < count; place++) {
    for (let channel = 0; channel < channels; channel++) planes[channel * count + place] = data[place * channels + channel] / 255;
  }
  return run(model.files.network, { images: { type: "float32", dims: [1, channels, height, width], data: planes } });
}

// Address of a picture of a pose of a class.
async function drawn(model, label, pose) {
  const poses = new Float32Array(model.classes.length * model.pose_dim);
  poses.set(pose, label * model.pose_dim);
  const { image } = await run(model.files.decoder, {
    pose: { type: "float32", dims: [1, model.classes.length, model.pose_dim], data: poses },
    label: { type: "int64", dims: [1], data: BigInt64Array.of(BigInt(label)) },
  });
  const [, channels, height, width] = image.dims;
  const pixels = new ImageData(width, height);
  for (let place = 0; place < width * height; place++) {
    for (let colour = 0; colour < 3; colour++) {
      // of channels that are not colours, the first
      pixels.data[4 * place + colour] = 255 * image.data[(channels === 3 ? colour : 0) * width * height + place];
    }
    pixels.data[4 * place + 3] = 255;
  }
  return address(pixels);
}

// Masks of the most active classes in colours, which add up where two overlap; transparent where there is none.
function overlay(model, activation, { dims: [, , height, width], data }) {
  const chosen = mostActive(model, activation);
  const colours = chosen.map((_, number) => COLOURS[number % COLOURS.length]);
  const pixels = new ImageData(width, height);
  for (let place = 0; place < width * height; place++) {
    for (const [number, label] of chosen.entries()) {
      if (data[label * width * height + place] <= 0) continue;
      for (let colour = 0; colour < 3; colour++) {
        pixels.data[4 * place + colour] += parseInt(colours[number].slice(1 + 2 * colour, 3 + 2 * colour), 16);
      }
      pixels.data[4 * place + 3] = 255;
    }
  }
  return { classes: chosen.map((place) => model.classes[place]), colours, picture: address(pixels) };
}

// Pixels as a PNG file in a data: address.
function address(pixels) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [pixels.width, pixels.height];
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas.toDataURL("image/png");
}

// A picture's file, decoded; the last one is kept, for it is asked about again and again.
let last = { file: null, bitmap: null };
async function decoded(file) {
  if (last.file === file) return last.bitmap;
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" }).catch(() => {
    throw new Error("the picture: not a PNG, JPEG, BMP or WebP picture, or a damaged one");
  });
  last.bitmap?.close();
  last = { file, bitmap };
  return bitmap;
}

// The worker, made when it is needed, and again after it could not be loaded.
let worker = null;
let count = 0;
const waiting = new Map(); // those who wait for an answer, by its number

function run(graph, inputs) {
  worker ??= started();
  return new Promise((resolve, reject) => {
    waiting.set(++count, { resolve, reject });
    worker.postMessage({ id: count, graph, inputs });
  });
}

function started() {
  const made = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  made.onmessage = ({ data: { id, outputs, problem } }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (problem) reject(new Error(problem));
    else resolve(outputs);
  };
  made.onerror = () => {
    for (const { reject } of waiting.values()) reject(new Error("worker.js could not be loaded, or stopped. Is it on this web server?"));
    waiting.clear();
    worker = null;
  };
  return made;
}
