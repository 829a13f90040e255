// What the page calls the parts of a network: those of a capsule network, or those of a pooling network.

const CAPSULES = {
  kind: ({ model, routing }) => `${model} with ${routing} routing`,
  title: "Pose",
  reset: "Reset pose",
  dimension: "dimension",
  ofWhat: "of the pose",
  awaited: "the reconstruction from the pose appears here",
  alt: "Reconstruction of the drawing from its pose",
  pose: (name) => `The pose of ${name}. Move a slider, or let it wiggle, and watch what it changes here.`,
  activations: "show activations",
  bars: "Click a class to see the pose, reconstruction and agreement of its capsule.",
  map: (name) => `Orange marks where the agreement on ${name} comes from, blue what is against it.`,
  noMap: "Its routing does not tell where the agreement comes from.",
};

const POOLING = {
  kind: ({ model }) => `${model}, a pooling network`,
  title: "Features",
  reset: "Reset features",
  dimension: "feature",
  ofWhat: "of the drawing",
  awaited: "the reconstruction from the features appears here",
  alt: "Reconstruction of the drawing from its features",
  pose: () => "The features of the drawing. Move a slider, or let it wiggle, and watch what it changes here.",
  activations: "show class scores",
  bars: "All classes are scored from the same features.",
  map: () => "",
  noMap: "A pooling network: it does not keep where in the drawing a score comes from.",
};

// What the numbers beside the bars are.
export const certaintyNote = ({ certainty }) =>
  certainty === "activation"
    ? "The numbers are certainties, each of its own: they need not add up to 100\u00a0%."
    : "The numbers are certainties, and add up to 100\u00a0%.";

// What networks with masks call it otherwise.
const SEGMENTING = {
  kind: ({ model, routing }) => (routing === null ? `${model}, a segmentation network` : `${model} with ${routing} routing`),
  bars: "A certainty is the mean over the pixels of the mask of a class.",
  noMap: "",
};

export function words(model) {
  const said = model.routing === null ? POOLING : CAPSULES;
  return model.segments ? { ...said, ...SEGMENTING } : said;
}

const COLOURS = { "#ff9628": "orange", "#288cff": "blue", "#3cc864": "green", "#dc50c8": "pink" };

// Which colour is which class.
export function masksNote({ classes, colours }) {
  const named = classes.map((name, place) => `${COLOURS[colours[place]]} the pixels of ${name}`).join(", ");
  return `The masks: ${named}${classes.length > 1 ? ", white those of both" : ""}.`;
}

const FOLLOWED = {
  x: ["mostly left–right", "moved left or right"],
  y: ["mostly up–down", "moved up or down"],
  rotation: ["mostly turn", "turned"],
  scale: ["mostly size", "made larger or smaller"],
  shear: ["mostly slant", "slanted"],
};

// Name of a slider: what its dimension follows, or else its number.
export function sliderName(model, { dimension, follows }) {
  return follows ? FOLLOWED[follows][0] : `${words(model).dimension} ${dimension + 1}`;
}

// What a slider is, in sentences.
export function sliderMeaning(model, { dimension, change, follows, r2 }) {
  const { dimension: part, ofWhat } = words(model);
  const sentences = [`${part[0].toUpperCase()}${part.slice(1)} ${dimension + 1} ${ofWhat}.`];
  if (follows) {
    const share = Math.round(100 * r2);
    sentences.push(`When pictures are ${FOLLOWED[follows][1]}, this number goes with them: alone it tells ${share}\u00a0% of it.`);
  }
  if (change !== undefined) {
    sentences.push(`Over its range it changes a pixel of the reconstruction by ${(100 * change).toFixed(1)}\u00a0% on average.`);
  }
  return sentences.join(" ");
}

// What a network was trained on, and what it therefore reads best.
export function trainedNote({ digits, trained_on: dataset }) {
  if (digits === "printed") {
    return `Trained on ${dataset}, so it reads printed digits best: write them like print, or press a key from 0 to 9.`;
  }
  if (digits === "handwritten") return `Trained on ${dataset}: it reads handwritten digits.`;
  return dataset ? `Trained on ${dataset}.` : "";
}

// What the empty board says.
export function invitation({ digits, classes, segments, labels_per_image: several }) {
  if (!classes.every((name) => /^[0-9]$/.test(name))) return "draw,\nor choose a picture";
  if (segments && several > 1) return "draw two digits\nover each other";
  return `draw a ${digits === "printed" ? "printed " : ""}digit,\nor press a key from 0 to 9`;
}
