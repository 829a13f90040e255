// Sliders of a pose: those that change most first, named by what they follow, each with a button that wiggles it.

import { decimal, element } from "./view.js";
import { sliderMeaning, sliderName } from "./words.js";

const MOST = 16;
const AT_FIRST = 8; // further ones are shown on demand
const WIGGLE = 2600; // milliseconds
let wide = false; // whether all are shown; stays when the network changes

// Creates the sliders of a network in a box. moved is called with the place in the pose and the value of one that moves.
// Returns functions: set the sliders to a pose of a class, and stop what wiggles.
export function sliders(box, model, moved) {
  let wiggling = null; // the slider that is playing, and its next frame
  const rows = Array.from({ length: Math.min(MOST, model.pose_dim) }, () => row());

  function row() {
    const input = element("input", { type: "range", step: "any", disabled: true });
    const [name, number, output] = [element("span"), element("small"), element("output")];
    const button = element("button", { type: "button", class: "wiggle", "aria-pressed": "false" }, "wiggle");
    const item = element("div", { class: "slider" }, element("label", {}, element("span", { class: "name" }, name, " ", number), input), output, button);
    const made = { item, name, number, input, output, button, slider: null, value: 0, usual: [0, 0] };
    input.addEventListener("input", () => {
      stop();
      put(made, Number(input.value));
    });
    button.addEventListener("click", () => {
      const again = wiggling?.made === made;
      stop();
      if (!again) wiggle(made);
    });
    return made;
  }

  function put(made, value) {
    made.value = value; // the element rounds it
    made.input.value = value;
    made.output.textContent = decimal(value);
    moved(made.slider.dimension, value);
  }

  // Plays a slider to the end of its usual range, to the other end, and back to where it was.
  function wiggle(made) {
    const { button, value: start } = made;
    const [low, high] = [Math.min(made.usual[0], start), Math.max(made.usual[1], start)];
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const began = performance.now();
    button.setAttribute("aria-pressed", "true");
    button.textContent = "stop";
    let last = null;
    const frame = (now) => {
      const part = Math.min(Math.max((now - began) / WIGGLE, 0), 1);
      const value = still ? [high, low, start, start][Math.floor(3 * part)] : along(start, low, high, part);
      if (value !== last) put(made, value);
      last = value;
      if (part < 1) wiggling = { made, frame: requestAnimationFrame(frame) };
      else stop();
    };
    wiggling = { made, frame: requestAnimationFrame(frame) };
  }

  function stop() {
    if (!wiggling) return;
    cancelAnimationFrame(wiggling.frame);
    wiggling.made.button.setAttribute("aria-pressed", "false");
    wiggling.made.button.textContent = "wiggle";
    wiggling = null;
  }

  function set(pose, label) {
    stop();
    const order = model.sliders?.[label] ?? unmeasured(model);
    for (const [place, made] of rows.entries()) {
      const { name, number, input, output, button } = made;
      const slider = (made.slider = order[place]);
      const { dimension } = slider;
      name.textContent = sliderName(model, slider);
      number.textContent = slider.follows ? `(${dimension + 1})` : ""; // two may follow the same
      made.item.title = sliderMeaning(model, slider);
      made.item.dataset.dimension = dimension;
      button.setAttribute("aria-label", `wiggle ${name.textContent} ${number.textContent}`.trim());
      input.disabled = button.disabled = !pose || !model.draws;
      output.textContent = pose ? decimal(pose[dimension]) : "";
      if (!pose) continue;
      const [low, high] = [model.pose_low[label][dimension], model.pose_high[label][dimension]];
      made.usual = [low, high];
      const room = Math.max(high - low, 0.02) / 4; // a little beyond the usual range
      input.min = Math.min(low - room, pose[dimension]);
      input.max = Math.max(high + room, pose[dimension]);
      input.value = made.value = pose[dimension];
    }
  }

  box.replaceChildren(...folded(rows.map(({ item }) => item)));
  return { set, stop };
}

// The first sliders, and the others behind a button.
function folded(items) {
  const [first, others] = [items.slice(0, AT_FIRST), items.slice(AT_FIRST)];
  const shown = element("div", { class: "rows" }, ...first);
  if (!others.length) return [shown];
  const hidden = element("div", { class: "rows", id: "more-sliders" }, ...others);
  const button = element("button", { type: "button", id: "more", "aria-controls": "more-sliders" });
  const show = () => {
    hidden.hidden = !wide;
    button.setAttribute("aria-expanded", String(wide));
    button.textContent = wide ? "Show fewer" : `Show ${others.length} more`;
  };
  button.addEventListener("click", () => {
    wide = !wide;
    show();
  });
  show();
  return [shown, hidden, button];
}

// Sliders before their effect is measured: the dimensions that vary most, in their own order.
function unmeasured({ pose_dim: count, pose_low: low, pose_high: high }) {
  const reach = Array.from({ length: count }, (_, place) =>
    Math.max(...high.map((ends, label) => ends[place] - low[label][place])),
  );
  const most = [...reach.keys()].sort((a, b) => reach[b] - reach[a]).slice(0, MOST);
  return most.sort((a, b) => a - b).map((dimension) => ({ dimension }));
}

// Value after a part of the way from start to high, to low, and back to start.
function along(start, low, high, part) {
  const gone = 2 * (high - low) * part;
  if (part === 1) return start;
  if (gone <= high - start) return start + gone;
  if (gone <= high - start + (high - low)) return high - (gone - (high - start));
  return low + (gone - (high - start) - (high - low));
}
