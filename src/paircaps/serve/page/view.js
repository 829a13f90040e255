// Parts of the page that show an answer: bars of classes, other networks, the agreement map, masks.

const FOR = [255, 122, 24];
const AGAINST = [47, 143, 255];

export const $ = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function row(name, onclick) {
  const fill = element("span", { class: "fill" });
  const value = element("span", { class: "value" });
  const label = element("span", { class: "name", title: name }, name);
  const activation = element("span", { class: "activation" });
  const track = element("span", { class: "track" }, fill);
  const button = element("button", { type: "button" }, label, track, value, activation);
  button.addEventListener("click", onclick);
  return { item: element("li", {}, button), button, fill, value, activation };
}

// Creates a bar for each class. Returns a function that sets the bars from an answer.
export function bars(list, classes, chosen) {
  const rows = classes.map((name) => row(name, () => chosen(name)));
  list.replaceChildren(...rows.map(({ item }) => item));
  list.style.setProperty("--names", `${Math.min(Math.max(...classes.map((name) => name.length)), 12) + 0.5}ch`);
  return (answer) => {
    for (const [place, name] of classes.entries()) {
      const { button, fill, value, activation } = rows[place];
      fill.style.transform = `scaleX(${answer ? answer.certainty[name] : 0})`;
      value.textContent = answer ? percent(answer.certainty[name]) : "";
      activation.textContent = answer ? decimal(answer.activations[name]) : "";
      button.setAttribute("aria-pressed", String(answer?.looked_at === name));
    }
  };
}

// Creates a bar for each of the other networks. Returns a function that sets them and returns how many disagree.
export function others(list, names, chosen) {
  const rows = new Map(names.map((name) => [name, row(name, () => chosen(name))]));
  list.replaceChildren(...[...rows.values()].map(({ item }) => item));
  return (answer) => {
    let differ = 0;
    for (const { model, classes, certainty } of answer.others) {
      const { item, fill, value } = rows.get(model);
      const different = classes.toSorted().join() !== answer.classes.toSorted().join(); // of two classes, in any order
      fill.style.transform = `scaleX(${certainty})`;
      value.textContent = `${classes.join(" + ")} (${percent(certainty)})`;
      item.classList.toggle("different", different);
      differ += different;
    }
    return differ;
  };
}

// A number with two decimals and a true minus sign; nothing is -0.00.
export const decimal = (value) => (Math.abs(value) < 0.005 ? 0 : value).toFixed(2).replace("-", "\u2212");

export const percent = (value) => `${Math.round(100 * value)}\u00a0%`;

// Draws shares over the drawing: orange for the class, blue against it.
export function map(canvas, agreement, scale) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!agreement) return;
  const { shares, rows, columns } = agreement;
  const most = Math.max(...shares.flat().map(Math.abs), 1e-12);
  // one more cell at every edge, so that the map reaches the edges of the picture
  const inside = (place, count) => Math.min(Math.max(place - 1, 0), count - 1);
  const [width, height] = [columns.length + 2, rows.length + 2];
  const small = document.createElement("canvas");
  [small.width, small.height] = [width, height];
  const pixels = new ImageData(width, height);
  for (let place = 0; place < width * height; place++) {
    const [x, y] = [place % width, Math.floor(place / width)];
    const share = shares[inside(y, rows.length)][inside(x, columns.length)];
    pixels.data.set([...(share >= 0 ? FOR : AGAINST), 165 * (Math.abs(share) / most)], 4 * place);
  }
  small.getContext("2d").putImageData(pixels, 0, 0);
  const [stepX, stepY] = [step(columns), step(rows)];
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(
    small,
    (columns[0] - 1.5 * stepX) * scale,
    (rows[0] - 1.5 * stepY) * scale,
    width * stepX * scale,
    height * stepY * scale,
  );
}

// Draws masks over the drawing, pixel by pixel of the network's image. The drawing is dimmed below them, so that white is
// where two masks overlap, and ink that belongs to none of them is grey.
export function masks(canvas, image, scale) {
  const context = canvas.getContext("2d");
  context.fillStyle = "rgba(0, 0, 0, 0.6)";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = false;
  context.globalAlpha = 0.85;
  context.drawImage(image, 0, 0, image.width * scale, image.height * scale);
  context.globalAlpha = 1;
}

const step = (centres) => (centres.length > 1 ? centres[1] - centres[0] : 2 * Math.max(centres[0], 1));

export function pen(canvas, at, size) {
  if (!at) return;
  const context = canvas.getContext("2d");
  context.strokeStyle = at.down ? "#ff7a18" : "#ffffff";
  context.lineWidth = 2;
  context.beginPath();
  context.arc(at.x, at.y, size / 2, 0, 2 * Math.PI);
  context.moveTo(at.x - size, at.y);
  context.lineTo(at.x + size, at.y);
  context.moveTo(at.x, at.y - size);
  context.lineTo(at.x, at.y + size);
  context.stroke();
}
