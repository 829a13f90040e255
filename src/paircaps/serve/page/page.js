// The page: a drawing, the chosen network, and its prediction.

import * as answers from "./answers.js"; // the one module that knows who answers
import { Pad, isLight, smaller } from "./pad.js";
import { sliders } from "./sliders.js";
import { copy, fileName, save, snapshot } from "./snapshot.js";
import { $, bars, element, map, masks, others, pen, percent } from "./view.js";
import { certaintyNote, invitation, masksNote, trainedNote, words } from "./words.js";

const state = {
  models: [],
  largest: 0, // most bytes of a file that is taken
  model: null, // description of the chosen network
  label: null, // class whose pose and agreement are shown; null for the most active one
  answer: null,
  pose: null, // pose that the sliders are set to
  moved: false, // whether that is another pose than the one of the answer
};
let setBars, setOthers, poseSliders;

$("not-started")?.remove();
const pad = new Pad($("pad"), drawing, () => showMap());

function drawing() {
  if (!state.model) return; // the networks are not known yet
  $("invitation").hidden = !pad.empty;
  $("undo").disabled = pad.past.length === 0;
  $("invert-label").hidden = !pad.picture;
  $("invert").checked = pad.inverted;
  if (pad.empty) {
    state.label = null;
    show(null); // at once, without waiting for an answer
  }
  ask();
}

// Returns a function that runs an asynchronous one for the latest state only: one run at a time, and one more
// afterwards if it was called meanwhile. The part of the page that waits for it is marked as busy.
function latest(part, run, failed) {
  let busy = false;
  let again = false;
  return async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    $(part).setAttribute("aria-busy", "true");
    try {
      do {
        again = false;
        try {
          await run();
        } catch (error) {
          problem(error.message);
          failed?.();
        }
      } while (again);
    } finally {
      busy = false;
      $(part).setAttribute("aria-busy", "false");
    }
  };
}

const ask = latest("says", async () => {
  if (!state.model || pad.empty) return;
  const { model, label } = state;
  const { source } = pad;
  let answer;
  try {
    answer = source ? await predict(source.file, source.invert) : await predict(pad.canvas, false);
  } catch (error) {
    if (!source?.shown || pad.source !== source || !/too (many|large|long)/.test(error.message)) throw error;
    pad.source = null; // the board's copy of it is small
    pad.paint(inverts(pad.picture));
    $("invert").checked = pad.inverted;
    answer = await predict(pad.canvas, false);
  }
  if (source && pad.source === source && pad.inverted !== answer.inverted) {
    pad.paint(answer.inverted);
    $("invert").checked = answer.inverted;
  }
  if (answer.masks) answer.masks.image = await pictureOf(answer.masks.picture);
  // ignore an answer for another network, another class, or a drawing that was cleared meanwhile
  if (!pad.empty && state.model === model && state.label === label) show(answer);
}, () => show(null));

const draw = latest("redrawn", async () => {
  const { model, answer, pose, moved } = state;
  if (!moved) return;
  const picture = await answers.draw({ model, label: answer.looked_at, pose });
  problem(null);
  // a slider that still moves gets another drawing; one of another answer, or of none that is moved, is dropped
  if (state.answer === answer && state.moved) $("reconstruction").src = picture;
});

// True if the chosen network exchanges dark and light of a picture. Of files the answer says so; this is for pictures
// that are taken as the board shows them.
function inverts(picture) {
  return state.model.invert === "always" || (state.model.invert === "light" && isLight(picture));
}

// Asks for the prediction of the chosen network, and of all others.
async function predict(picture, invert) {
  const { model, models, label } = state;
  const answer = await answers.predict({ model, picture, label, invert, compare: models.length > 1 });
  problem(null);
  return answer;
}

function problem(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text ?? "";
}

function show(answer) {
  state.answer = answer;
  setBars(answer);
  showVerdict(answer);
  showOthers(answer);
  showMap();
  showPose(answer);
  $("save").disabled = $("copy").disabled = !answer;
  $("copied").textContent = "";
}

const verdict = ({ classes, certainty }) => classes.map((name) => `${name} (${percent(certainty[name])})`).join(" and ");

function showVerdict(answer) {
  const text = answer ? verdict(answer) : "nothing yet";
  if ($("verdict").textContent !== text) $("verdict").textContent = text;
}

function showOthers(answer) {
  $("others-box").hidden = !answer?.others.length;
  if (!answer?.others.length) return;
  const differ = setOthers(answer);
  $("same").textContent = differ ? `${differ} of ${answer.others.length} say something else.` : "They all say the same.";
}

function showMap() {
  const { model, answer } = state;
  $("undo").disabled = pad.past.length === 0;
  if (!model) return;
  const shown = $("show-map").checked;
  [$("map").width, $("map").height] = [pad.canvas.width, pad.canvas.height];
  map($("map"), shown ? answer?.agreement : null, pad.pixel);
  if (shown && answer?.masks) masks($("map"), answer.masks.image, pad.pixel);
  pen($("map"), pad.pen, 24);
  $("map-label").hidden = !model.agrees && !model.segments;
  $("map-label").lastChild.textContent = model.segments ? " show masks" : " show agreement";
  if (model.segments) $("map-note").textContent = answer ? masksNote(answer.masks) : "";
  else if (!model.agrees) $("map-note").textContent = words(model).noMap;
  else $("map-note").textContent = answer ? words(model).map(answer.looked_at) : "";
}

function showPose(answer) {
  const drawn = answer?.reconstruction;
  state.pose = answer ? [...answer.pose] : null;
  state.moved = false;
  $("reset").disabled = true;
  $("reconstruction").hidden = !drawn;
  $("no-reconstruction").hidden = Boolean(drawn);
  if (drawn) $("reconstruction").src = drawn;
  $("no-reconstruction").textContent = state.model.draws
    ? words(state.model).awaited
    : "this network was trained without a decoder, so it has no reconstruction";
  poseSliders.set(answer?.pose ?? null, answer ? state.model.classes.indexOf(answer.looked_at) : 0);
  $("pose-note").textContent = answer && drawn ? `${words(state.model).pose(answer.looked_at)} ${orderNote(state.model)}` : "";
}

function orderNote(model) {
  const few = model.pose_dim > 16 ? `, of ${model.pose_dim} the 16 that vary most` : "";
  return model.sliders ? `Those that change most come first${few}.` : "Which of them change most is still being measured.";
}

function movedSlider(place, value) {
  state.pose = state.pose.with(place, value);
  state.moved = state.pose.some((one, at) => one !== state.answer.pose[at]);
  $("reset").disabled = !state.moved;
  if (state.moved) draw();
  else $("reconstruction").src = state.answer.reconstruction;
}

// Asks for the networks again until the sliders of all that draw are measured, which takes some seconds.
async function awaitSliders(pause = 1000) {
  while (state.models.some(({ draws, sliders }) => draws && !sliders)) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, 10_000);
    const found = await answers.models().catch(() => ({ models: [] }));
    for (const { name, sliders } of found.models) {
      const model = state.models.find((one) => one.name === name);
      if (!sliders || !model || model.sliders) continue;
      model.sliders = sliders;
      // while somebody moves the sliders, their order stays as it is
      if (model === state.model && !state.moved) showPose(state.answer);
    }
  }
}

function picture() {
  const { model, answer } = state;
  const drawing = { caption: "drawing", layers: $("show-map").checked ? [$("pad"), $("map")] : [$("pad")] };
  const panels = [drawing];
  if (answer.reconstruction) {
    panels.push({ caption: state.moved ? "reconstruction, changed" : "reconstruction", layers: [$("reconstruction")], pixelated: true });
  }
  const bars = model.classes.map((name) => ({
    name,
    value: answer.certainty[name],
    text: percent(answer.certainty[name]),
    chosen: answer.looked_at === name,
  }));
  return snapshot({ title: verdict(answer), subtitle: `${model.name}: ${facts(model)}`, panels, bars });
}

function namedInAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // an address that cannot be decoded names no network
  }
}

function choose(name) {
  const model = state.models.find((one) => one.name === name) ?? state.models[0];
  if (state.label !== null && !model.classes.includes(state.label)) state.label = null;
  state.model = model;
  history.replaceState(null, "", `#${encodeURIComponent(model.name)}`);
  for (const input of $("models").querySelectorAll("input")) input.checked = input.value === model.name;
  setBars = bars($("bars"), model.classes, (label) => {
    state.label = state.label === label ? null : label;
    ask();
  });
  setOthers = others($("others"), state.models.map(({ name }) => name).filter((name) => name !== model.name), choose);
  poseSliders?.stop();
  poseSliders = sliders($("sliders"), model, movedSlider);
  showWords(model);
  $("redrawn").style.aspectRatio = `${model.width} / ${model.height}`;
  pad.shape(model.width, model.height, model.fit);
  show(null);
  ask();
  answers.ready(model, () => state.moved || ask()); // an answer would put moved sliders back
}

function facts(model) {
  const parts = [words(model).kind(model), `${model.parameters.toLocaleString("en")} parameters`, `images of ${model.width}×${model.height}`];
  return parts.join(", ");
}

// Sets every text that depends on the network.
function showWords(model) {
  const said = words(model);
  $("pose-title").textContent = said.title;
  $("reset").textContent = said.reset;
  $("reconstruction").alt = said.alt;
  $("activations-label").textContent = said.activations;
  $("bars-note").textContent = `${certaintyNote(model)} ${said.bars}`;
  $("trained-note").textContent = trainedNote(model);
  $("invitation").textContent = invitation(model);
  $("facts").textContent = `${facts(model)}.`;
}

// Shows a picture from a file, a drop or the clipboard. One that the browser cannot show is shown as the network sees it,
// if whoever answers can read it.
let taken = 0;
async function take(file) {
  if (!file || !state.model) return;
  problem(null);
  const turn = ++taken;
  let picture;
  let shown = true; // whether the browser can show the file itself
  try {
    picture = await createImageBitmap(file);
  } catch {
    shown = false;
    try {
      picture = await pictureOf((await predict(file, false)).seen);
    } catch (error) {
      problem(error.message);
      return;
    }
  }
  if (turn !== taken) return; // another picture was chosen meanwhile
  state.label = null;
  picture = smaller(picture, state.model.background);
  if (shown && file.size > state.largest) pad.show(picture, inverts(picture), null);
  else pad.show(picture, false, { file, invert: null, shown });
}

async function pictureOf(address) {
  const picture = new Image();
  picture.src = address;
  await picture.decode();
  return picture;
}

function listen() {
  $("clear").addEventListener("click", () => pad.clear());
  $("undo").addEventListener("click", () => pad.undo());
  $("show-map").addEventListener("change", showMap);
  $("invert").addEventListener("change", () => {
    const invert = $("invert").checked;
    if (pad.picture) pad.show(pad.picture, invert, pad.source && { ...pad.source, invert });
  });
  $("reset").addEventListener("click", () => showPose(state.answer));
  $("show-activations").addEventListener("change", () => {
    $("bars").classList.toggle("with-activations", $("show-activations").checked);
  });
  $("save").addEventListener("click", async () => {
    const { model, answer } = state;
    save(await picture(), fileName(model.name, answer.classes));
  });
  $("copy").addEventListener("click", async () => {
    $("copied").textContent = await copy(picture());
  });
  $("file").addEventListener("change", (event) => {
    take(event.target.files[0]);
    event.target.value = ""; // the same file may be chosen again
  });
  window.addEventListener("hashchange", () => choose(namedInAddress()));
  document.addEventListener("keydown", (event) => {
    // without focus on the board, only digits are taken, wherever the focus is: other keys scroll the page, or move a slider
    if (event.target !== pad.canvas && /^[0-9]$/.test(event.key)) pad.key(event);
  });
  document.addEventListener("paste", (event) => take(event.clipboardData.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      $("frame").classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files[0]);
    });
  }
}

async function begin() {
  ({ models: state.models, largest: state.largest } = await answers.models());
  for (const { name } of state.models) {
    const input = element("input", { type: "radio", name: "model", value: name });
    input.addEventListener("change", () => choose(name));
    $("models").append(element("label", {}, input, name));
  }
  listen();
  choose(namedInAddress());
  awaitSliders();
}

begin().catch((error) => problem(error.message));
