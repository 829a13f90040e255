// A picture of what the page shows: drawing, reconstruction and bars, as a PNG file.

const EDGE = 24;
const PANEL = 280;
const BARS = 270;
const ROW = 25;
const MOST_BARS = 14;
const SHARP = 2; // pixels of the file for each of the layout

// Draws the picture. what has: title, subtitle, panels (each with a caption, and layers to draw over each other), and
// bars (each with name, value, text, chosen). Returns a promise of the file.
export function snapshot(what) {
  const colour = colours();
  const bars = most(what.bars);
  const side = Math.max(...what.panels.map(({ layers: [{ width, height }] }) => (PANEL * height) / Math.max(width, height)));
  const top = EDGE + 74;
  const canvas = document.createElement("canvas");
  const width = EDGE + what.panels.length * (PANEL + EDGE) + BARS + EDGE;
  const height = top + 22 + Math.max(side, bars.length * ROW) + EDGE;
  [canvas.width, canvas.height] = [SHARP * width, SHARP * height];
  const context = canvas.getContext("2d");
  context.scale(SHARP, SHARP);
  context.fillStyle = colour("--card");
  context.fillRect(0, 0, width, height);
  context.textBaseline = "alphabetic";
  text(context, what.title, EDGE, EDGE + 20, width - 2 * EDGE, 24, colour("--ink"), 650);
  text(context, what.subtitle, EDGE, EDGE + 42, width - 2 * EDGE, 13, colour("--pale"));
  let left = EDGE;
  for (const { caption, layers, pixelated } of what.panels) {
    text(context, caption, left, top + 8, PANEL, 13, colour("--pale"));
    panel(context, layers, pixelated, left, top + 22);
    left += PANEL + EDGE;
  }
  text(context, "certainty", left, top + 8, BARS, 13, colour("--pale"));
  for (const [place, bar] of bars.entries()) drawBar(context, bar, left, top + 22 + place * ROW, bars, colour);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// At most so many bars: of more, the highest, in their own order.
function most(bars) {
  const least = bars.map(({ value }) => value).sort((a, b) => b - a)[MOST_BARS - 1] ?? -1;
  return bars.filter(({ value }) => value >= least).slice(0, MOST_BARS);
}

function panel(context, layers, pixelated, left, top) {
  const [{ width, height }] = layers;
  const scale = PANEL / Math.max(width, height);
  context.fillStyle = "black";
  context.fillRect(left, top, width * scale, height * scale);
  context.imageSmoothingEnabled = !pixelated;
  context.imageSmoothingQuality = "high";
  for (const layer of layers) context.drawImage(layer, left, top, width * scale, height * scale);
}

function drawBar(context, { name, value, text: said, chosen }, left, top, bars, colour) {
  const names = Math.min(110, 12 + 9 * Math.max(...bars.map((bar) => bar.name.length)));
  const room = BARS - names - 54;
  text(context, name, left, top + 15, names - 8, 14, colour("--ink"), chosen ? 650 : 400);
  context.fillStyle = colour("--track");
  context.fillRect(left + names, top + 3, room, 14);
  context.fillStyle = colour("--bar");
  context.fillRect(left + names, top + 3, room * value, 14);
  context.textAlign = "right";
  text(context, said, left + BARS, top + 15, 50, 13, colour(chosen ? "--ink" : "--pale"));
  context.textAlign = "left";
}

// Writes a line of text; one that is too long ends in an ellipsis.
function text(context, line, x, y, room, size, colour, weight = 400) {
  context.font = `${weight} ${size}px system-ui, sans-serif`;
  context.fillStyle = colour;
  let said = line;
  while (said.length > 1 && context.measureText(said).width > room) said = `${said.slice(0, -2)}…`;
  context.fillText(said, x, y);
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}

// Name of the file: the network and the class, in letters that every system takes.
export function fileName(network, classes) {
  const part = (name) => name.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+|[-.]+$/g, "") || "unnamed";
  return `paircaps-${part(network)}-${part(classes.join("-"))}.png`;
}

export function save(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Puts a picture, given as a promise of its file, into the clipboard. Returns what to say about it.
export async function copy(picture) {
  if (!navigator.clipboard?.write || !window.ClipboardItem) {
    return "This browser copies no pictures from this page. Save as PNG works.";
  }
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
    return "Copied: paste it where you want it.";
  } catch {
    return "The browser did not allow the page to copy. Save as PNG works.";
  }
}
