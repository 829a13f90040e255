// The page: a drawing, the chosen network, and its prediction.

import { Pad, isLight, smaller } from "/pad.js";
import { $, bars, element, map, others, pen, percent, sliders } from "/view.js";

const state = {
  models: [],
  largest: 0, // most bytes of a file that the server takes
  model: null, // description of the chosen network
  label: null, // class whose pose and agreement are shown; null for the most active one
  answer: null,
  pose: null, // pose that the sliders are set to
};
let setBars, setOthers, setSliders;

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
    answer = source ? await predict(source.file, source.invert) : await predict(await pad.file(), false);
  } catch (error) {
    if (!source?.shown || pad.source !== source) throw error;
    pad.source = null; // too many pixels for the server, perhaps: the board's copy of it is small
    pad.paint(inverts(pad.picture));
    $("invert").checked = pad.inverted;
    answer = await predict(await pad.file(), false);
  }
  if (source && pad.source === source && pad.inverted !== answer.inverted) {
    pad.paint(answer.inverted);
    $("invert").checked = answer.inverted;
  }
  // ignore an answer for another network, another class, or a drawing that was cleared meanwhile
  if (!pad.empty && state.model === model && state.label === label) show(answer);
}, () => show(null));

const draw = latest("redrawn", async () => {
  const { model, answer, pose } = state;
  if (!pose || !answer) return;
  const { picture } = await fetched("/api/draw", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model: model.name, class: answer.looked_at, pose }),
  });
  if (state.pose === pose) $("reconstruction").src = picture;
});

// True if the chosen network exchanges dark and light of a picture. The server decides for files; this is for pictures
// that are sent as the board shows them.
function inverts(picture) {
  return state.model.invert === "always" || (state.model.invert === "light" && isLight(picture));
}

function predict(file, invert) {
  const form = new FormData();
  form.append("file", file, "drawing.png");
  form.append("model", state.model.name);
  form.append("compare", String(state.models.length > 1));
  if (state.label !== null) form.append("class", state.label);
  if (invert !== null) form.append("invert", String(invert));
  return fetched("/api/predict", { method: "POST", body: form });
}

async function fetched(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer. Is paircaps serve still running?");
  }
  const said = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(said.detail ?? `The server answered ${response.status}.`);
  problem(null);
  return said;
}

function problem(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text ?? "";
}

function show(answer) {
  state.answer = answer;
  state.pose = answer ? [...answer.pose] : null;
  setBars(answer);
  showVerdict(answer);
  showOthers(answer);
  showMap();
  showPose(answer);
}

function showVerdict(answer) {
  const text = answer ? answer.classes.map((name) => `${name} (${percent(answer.certainty[name])})`).join(" and ") : "nothing yet";
  if ($("verdict").textContent !== text) $("verdict").textContent = text;
}

function showOthers(answer) {
  $("others-box").hidden = !answer?.others.length;
  if (!answer?.others.length) return;
  const differ = setOthers(answer);
  $("agreed").textContent = differ ? `${differ} of ${answer.others.length} disagree.` : "They all agree.";
}

function showMap() {
  const { model, answer } = state;
  $("undo").disabled = pad.past.length === 0;
  if (!model) return;
  const shown = $("show-map").checked && answer?.agreement;
  [$("map").width, $("map").height] = [pad.canvas.width, pad.canvas.height];
  map($("map"), shown ? answer.agreement : null, pad.pixel);
  pen($("map"), pad.pen, 24);
  $("show-map").disabled = !model.agrees;
  if (!model.agrees) $("map-note").textContent = "This network has no capsules, so no agreement to show.";
  else if (!answer) $("map-note").textContent = "";
  else $("map-note").textContent = `Orange marks where the agreement on ${answer.looked_at} comes from, blue what is against it.`;
}

function showPose(answer) {
  const drawn = answer?.reconstruction;
  $("reconstruction").hidden = !drawn;
  $("no-reconstruction").hidden = Boolean(drawn);
  if (drawn) $("reconstruction").src = drawn;
  $("no-reconstruction").textContent = state.model.draws
    ? "the reconstruction from the pose appears here"
    : "this network was trained without a decoder, so it has no reconstruction";
  setSliders(answer?.pose ?? null, answer ? state.model.classes.indexOf(answer.looked_at) : 0);
  $("reset").disabled = true;
  const few = state.model.pose_dim > 16 ? ` Shown are the 16 of ${state.model.pose_dim} dimensions that vary most.` : "";
  $("pose-note").textContent = answer
    ? `The pose of ${answer.looked_at}: move a slider to see what its dimension stands for.${few}`
    : "";
}

function movedSlider(place, value) {
  state.pose = state.pose.with(place, value);
  $("reset").disabled = false;
  draw();
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
  setSliders = sliders($("sliders"), model, movedSlider);
  $("facts").textContent = [
    `${model.model}${model.routing ? ` with ${model.routing} routing` : ""}`,
    `${model.parameters.toLocaleString("en")} parameters`,
    `images of ${model.width}×${model.height}.`,
  ].join(", ");
  $("redrawn").style.aspectRatio = `${model.width} / ${model.height}`;
  pad.shape(model.width, model.height, model.fit);
  show(null);
  ask();
}

// Shows a picture from a file, a drop or the clipboard. If the browser cannot read it, the server tries, or says why not.
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
  picture = smaller(picture);
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
  $("reset").addEventListener("click", () => {
    state.pose = [...state.answer.pose];
    showPose(state.answer);
  });
  $("file").addEventListener("change", (event) => {
    take(event.target.files[0]);
    event.target.value = ""; // the same file may be chosen again
  });
  window.addEventListener("hashchange", () => choose(namedInAddress()));
  document.addEventListener("keydown", (event) => {
    // without focus on the board, only digits are taken: other keys scroll the page
    if (event.target === document.body && /^[0-9]$/.test(event.key)) pad.key(event);
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
  ({ models: state.models, largest: state.largest } = await fetched("/api/models"));
  for (const { name } of state.models) {
    const input = element("input", { type: "radio", name: "model", value: name });
    input.addEventListener("change", () => choose(name));
    $("models").append(element("label", {}, input, name));
  }
  listen();
  choose(namedInAddress());
}

begin().catch((error) => problem(error.message));
