// The drawing board: white on black, as the networks take it; for mouse, pen, finger, keyboard and pictures.

const LONG_SIDE = 320;
const BRUSH = 0.075; // width of the brush, as a fraction of the board's side
const MOST_UNDO = 30;
const TALL = 20; // height of a digit of MNIST in pixels

export class Pad {
  // changed: called after every change of the drawing; moved: called when the keyboard's pen has moved.
  constructor(canvas, changed, moved) {
    this.canvas = canvas;
    this.changed = changed;
    this.moved = moved;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.past = [];
    this.picture = null;
    this.source = null; // file of the picture, as long as nothing was drawn on it: it is sent as it is
    this.fit = "pad"; // how a picture of another aspect ratio is fitted, as the network does it
    this.inverted = false;
    this.empty = true;
    this.pen = null; // pen of the keyboard: its position, and whether it is down
    this.#listen();
  }

  // Gives the board the aspect ratio of a network's images; a drawing is fitted into it, a picture as the network does.
  shape(width, height, fit) {
    this.fit = fit;
    const scale = LONG_SIDE / Math.max(width, height);
    const size = [Math.round(width * scale), Math.round(height * scale)];
    this.pixel = scale;
    if (this.canvas.width === size[0] && this.canvas.height === size[1]) {
      if (this.source) this.paint(this.inverted);
      return;
    }
    const old = this.empty ? null : copyOf(this.canvas);
    [this.canvas.width, this.canvas.height] = size;
    this.#blank();
    if (this.source) this.paint(this.inverted);
    else if (old) this.#place(old, "pad");
    this.past = [];
    this.moved();
  }

  clear() {
    this.#remember();
    this.#blank();
    this.picture = this.source = null;
    this.empty = true;
    this.changed();
  }

  undo() {
    const last = this.past.pop();
    if (!last) return;
    this.context.putImageData(last.pixels, 0, 0);
    ({ empty: this.empty, picture: this.picture, source: this.source, inverted: this.inverted } = last);
    this.changed();
  }

  // Shows a picture on the board, with dark and light exchanged if invert is true. The source is what is sent of it,
  // { file, invert }: its file, and whether it is to be inverted, null if the network decides.
  show(picture, invert, source) {
    this.#remember();
    this.picture = picture;
    this.source = source;
    this.paint(invert);
    this.empty = false;
    this.changed();
  }

  // Draws the picture anew, with dark and light exchanged or not.
  paint(invert) {
    this.#blank();
    const box = this.#place(this.picture, this.fit);
    if (invert) {
      // white minus the picture; not all browsers have canvas filters
      this.context.globalCompositeOperation = "difference";
      this.context.fillStyle = "white";
      this.context.fillRect(...box);
      this.context.globalCompositeOperation = "source-over";
    }
    this.inverted = invert;
  }

  // Writes a digit near the middle, slightly rotated, both at random.
  write(digit) {
    this.#remember();
    this.#blank();
    const { context, canvas } = this;
    const about = (reach) => (2 * Math.random() - 1) * reach;
    context.save();
    context.translate(canvas.width * (0.5 + about(0.08)), canvas.height * (0.5 + about(0.08)));
    context.rotate(about(0.25));
    context.font = `600 ${(TALL * this.pixel) / 0.72}px sans-serif`;
    context.textAlign = "center";
    context.fillStyle = "white";
    const drawn = context.measureText(digit);
    context.fillText(digit, 0, (drawn.actualBoundingBoxAscent - drawn.actualBoundingBoxDescent) / 2);
    context.restore();
    this.picture = this.source = null;
    this.empty = false;
    this.changed();
  }

  #blank() {
    this.context.fillStyle = "black";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  #place(picture, fit) {
    const { width, height } = this.canvas;
    const scales = [width / picture.width, height / picture.height];
    const scale = fit === "crop" ? Math.max(...scales) : Math.min(...scales);
    const [w, h] = fit === "stretch" ? [width, height] : [picture.width * scale, picture.height * scale];
    const box = [(width - w) / 2, (height - h) / 2, w, h];
    this.context.imageSmoothingQuality = "high";
    this.context.drawImage(picture, ...box);
    return box;
  }

  #remember() {
    const pixels = this.context.getImageData(0, 0, this.canvas.width, this.canvas.height);
    const { empty, picture, source, inverted } = this;
    this.past.push({ pixels, empty, picture, source, inverted });
    if (this.past.length > MOST_UNDO) this.past.shift();
  }

  #line(from, to) {
    const { context, canvas } = this;
    context.strokeStyle = "white";
    context.lineWidth = BRUSH * Math.min(canvas.width, canvas.height);
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y + (from.x === to.x && from.y === to.y ? 0.01 : 0));
    context.stroke();
    this.source = null; // from now on the drawing is sent
    this.empty = false;
    this.changed();
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * this.canvas.width,
      y: ((event.clientY - box.top) / box.height) * this.canvas.height,
    };
  }

  #listen() {
    const { canvas } = this;
    let last = null;
    let pointer = null; // one finger draws; a second one, or a palm, does not
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      canvas.setPointerCapture(event.pointerId);
      pointer = event.pointerId;
      this.pen = null;
      this.#remember();
      last = this.#at(event);
      this.#line(last, last);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last || event.pointerId !== pointer) return;
      for (const step of event.getCoalescedEvents?.().concat(event) ?? [event]) {
        const next = this.#at(step);
        this.#line(last, next);
        last = next;
      }
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (event) => {
        if (event.pointerId === pointer) last = null;
      });
    }
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.#lift());
  }

  key(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "z" && !event.altKey) this.undo();
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key in arrows) this.#move(...arrows[event.key], event.shiftKey);
    else if (event.key === " ") this.#toggle();
    else if (event.key === "Delete" || event.key === "Backspace") this.clear();
    else if (event.key === "Escape") this.#lift();
    else if (/^[0-9]$/.test(event.key)) this.write(event.key);
    else return;
    event.preventDefault();
  }

  #lift() {
    if (!this.pen) return;
    this.pen = null;
    this.moved();
  }

  #toggle() {
    this.pen ??= this.#middle();
    this.pen.down = !this.pen.down;
    if (this.pen.down) {
      this.#remember();
      this.#line(this.pen, this.pen);
    }
    this.moved();
  }

  #move(x, y, fine) {
    this.pen ??= this.#middle();
    const step = (fine ? 0.0125 : 0.05) * Math.min(this.canvas.width, this.canvas.height);
    const from = { ...this.pen };
    this.pen.x = Math.min(Math.max(this.pen.x + x * step, 0), this.canvas.width);
    this.pen.y = Math.min(Math.max(this.pen.y + y * step, 0), this.canvas.height);
    if (this.pen.down) this.#line(from, this.pen);
    this.moved();
  }

  #middle() {
    return { x: this.canvas.width / 2, y: this.canvas.height / 4, down: false };
  }
}

// True if a picture is light at its edges, as dark ink on paper is.
export function isLight(picture) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 32;
  const context = canvas.getContext("2d");
  context.fillRect(0, 0, 32, 32);
  context.drawImage(picture, 0, 0, 32, 32);
  const { data } = context.getImageData(0, 0, 32, 32);
  let [sum, count] = [0, 0];
  for (let place = 0; place < 32 * 32; place++) {
    const [x, y] = [place % 32, Math.floor(place / 32)];
    if (x > 1 && x < 30 && y > 1 && y < 30) continue;
    sum += data[4 * place] + data[4 * place + 1] + data[4 * place + 2];
    count += 3;
  }
  return sum / count > 128;
}

// Scales a picture down to what the board can show, since undo keeps many of them.
export function smaller(picture, background) {
  const scale = Math.min(1, (3 * LONG_SIDE) / Math.max(picture.width, picture.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  const context = canvas.getContext("2d");
  context.fillStyle = `rgb(${background}, ${background}, ${background})`; // behind transparent pixels
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  picture.close?.();
  return canvas;
}

function copyOf(canvas) {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  copy.getContext("2d").drawImage(canvas, 0, 0);
  return copy;
}
