// Pictures as networks take them: what paircaps/pictures.py does with Pillow. A byte of an opaque picture differs by one
// at most: Pillow rounds it after rows or after columns, as its version likes.
// A picture here is { width, height, channels, data }: bytes, row by row, channels beside each other.

const MOST_PIXELS = 64_000_000;
const LARGE = 1 << 20; // pixels above which a picture is averaged down before it is resized,
const DETAIL = 4; // to about this many times the size that is wanted
const STRIP = 1 << 20; // pixels that are read from the canvas at once
const EDGES = 32; // side to which a picture is reduced before its edges, two pixels wide there, are looked at
const BITS = 22; // of the fractions of a pixel's weight

const TRIANGLE = { reach: 1, weigh: (x) => Math.max(0, 1 - Math.abs(x)) };
const BOX = { reach: 0.5, weigh: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) };

// Fits a picture of the browser, a canvas or an ImageBitmap, to the images of a network. invert is whether dark and light
// are exchanged, null if the network decides. Returns the picture, and whether they were.
export function prepare(source, { width, height, channels, fit, background, invert: usual }, invert) {
  const inversion = invert === null ? usual : invert ? "always" : "never";
  // transparent pixels have the background's grey level in the end, also if the picture is inverted
  const behind = inversion === "always" ? 255 - background : background;
  const small = read(source, Math.max(width, height), channels, behind);
  const inverted = inversion === "always" || (inversion === "light" && isLight(small));
  if (inverted) small.data.forEach((value, place) => (small.data[place] = 255 - value));
  return { picture: FITS[fit](small, width, height), inverted };
}

// A picture of a canvas or an ImageBitmap: opaque, grey or colour, a large one averaged down. It is read strip by strip.
function read(source, side, channels, background) {
  const { width, height } = source;
  const all = width * height;
  if (all > MOST_PIXELS) throw new Error(`the picture: ${width}×${height} pixels are too many, ${MOST_PIXELS.toLocaleString("en")} at most`);
  const by = (length) => (all <= LARGE ? 1 : Math.max(1, Math.floor(length / (DETAIL * side))));
  const [across, down] = [by(width), by(height)];
  const small = blank(Math.ceil(width / across), Math.ceil(height / down), channels);
  const rows = Math.max(1, Math.floor(STRIP / (width * down))) * down;
  const context = drawingOf(width, Math.min(rows, height));
  for (let top = 0; top < height; top += rows) {
    const count = Math.min(rows, height - top);
    context.clearRect(0, 0, width, rows);
    context.drawImage(source, 0, top, width, count, 0, 0, width, count);
    const strip = opaque(context.getImageData(0, 0, width, count), channels, background);
    small.data.set(reduced(strip, across, down).data, (top / down) * small.width * channels);
  }
  return small;
}

function drawingOf(width, height) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  return canvas.getContext("2d", { willReadFrequently: true });
}

function blank(width, height, channels) {
  return { width, height, channels, data: new Uint8ClampedArray(width * height * channels) };
}

// Pixels of a canvas over a grey ground, in grey or colour.
function opaque({ width, height, data: pixels }, channels, background) {
  const picture = blank(width, height, channels);
  const { data } = picture;
  for (let place = 0; place < width * height; place++) {
    const at = 4 * place;
    const alpha = pixels[at + 3];
    let [red, green, blue] = [pixels[at], pixels[at + 1], pixels[at + 2]];
    if (alpha < 255) {
      const over = (value) => Math.round((value * alpha + background * (255 - alpha)) / 255);
      [red, green, blue] = [over(red), over(green), over(blue)];
    }
    if (channels === 1) {
      data[place] = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16;
    } else {
      data[3 * place] = red;
      data[3 * place + 1] = green;
      data[3 * place + 2] = blue;
    }
  }
  return picture;
}

// Means of blocks of pixels; those at the right and lower edges may be smaller.
function reduced(picture, across, down) {
  if (across === 1 && down === 1) return picture;
  const { width, height, channels, data } = picture;
  const small = blank(Math.ceil(width / across), Math.ceil(height / down), channels);
  for (let y = 0; y < small.height; y++) {
    const bottom = Math.min((y + 1) * down, height);
    for (let x = 0; x < small.width; x++) {
      const right = Math.min((x + 1) * across, width);
      const count = (bottom - y * down) * (right - x * across);
      for (let channel = 0; channel < channels; channel++) {
        let sum = count >> 1;
        for (let row = y * down; row < bottom; row++) {
          for (let column = x * across; column < right; column++) sum += data[(row * width + column) * channels + channel];
        }
        small.data[(y * small.width + x) * channels + channel] = Math.floor(sum / count);
      }
    }
  }
  return small;
}

// True if a picture is light at its edges, as dark ink on paper is.
function isLight(picture) {
  const { data } = resized(grey(picture), EDGES, EDGES, BOX);
  let [sum, count] = [0, 0];
  for (let place = 0; place < EDGES * EDGES; place++) {
    const [x, y] = [place % EDGES, Math.floor(place / EDGES)];
    if (x > 1 && x < EDGES - 2 && y > 1 && y < EDGES - 2) continue;
    sum += data[place];
    count += 1;
  }
  return sum / count > 127.5;
}

function grey({ width, height, channels, data }) {
  const picture = blank(width, height, 1);
  for (let place = 0; place < width * height; place++) {
    const at = channels * place;
    picture.data[place] =
      channels === 1 ? data[at] : (19595 * data[at] + 38470 * data[at + 1] + 7471 * data[at + 2] + 0x8000) >> 16;
  }
  return picture;
}

// How a picture of another aspect ratio becomes one of a width and height.
const FITS = {
  stretch: (picture, width, height) => resized(picture, width, height, TRIANGLE),

  // the middle of what is too long
  crop(picture, width, height) {
    const [own, wanted] = [picture.width / picture.height, width / height];
    const part = [picture.width, picture.height];
    if (own > wanted) part[0] = wanted * picture.height;
    else if (own < wanted) part[1] = picture.width / wanted;
    const [left, top] = [(picture.width - part[0]) * 0.5, (picture.height - part[1]) * 0.5];
    return resized(picture, width, height, TRIANGLE, [left, top, left + part[0], top + part[1]]);
  },

  // with black beside it
  pad(picture, width, height) {
    const scale = Math.min(width / picture.width, height / picture.height);
    const side = (length) => Math.max(1, toEven(length * scale)); // a line stays a line
    const inner = resized(picture, side(picture.width), side(picture.height), TRIANGLE);
    const [left, top] = [toEven((width - inner.width) * 0.5), toEven((height - inner.height) * 0.5)];
    const padded = blank(width, height, picture.channels);
    for (let row = 0; row < inner.height; row++) {
      const line = inner.data.subarray(row * inner.width * inner.channels, (row + 1) * inner.width * inner.channels);
      padded.data.set(line, ((top + row) * width + left) * inner.channels);
    }
    return padded;
  },
};

// Rounds as Python does: halves go to the even number.
function toEven(value) {
  const down = Math.floor(value);
  const rest = value - down;
  return rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down;
}

// Resizes a part of a picture, [left, top, right, bottom], with a filter that widens to all pixels that it covers: as
// Pillow does it, first along rows, then along columns, with weights of 22 bits and bytes between the two.
function resized(picture, width, height, filter, [left, top, right, bottom] = [0, 0, picture.width, picture.height]) {
  const across = weights(picture.width, left, right, width, filter);
  const down = weights(picture.height, top, bottom, height, filter);
  return alongColumns(alongRows(picture, across), down);
}

// For each new pixel the first old one that it covers, and the weights of all of them; null if nothing changes.
function weights(length, from, to, wanted, { reach, weigh }) {
  if (length === wanted && from === 0 && to === length) return null;
  const scale = (to - from) / wanted;
  const wide = Math.max(scale, 1);
  return Array.from({ length: wanted }, (_, place) => {
    const centre = from + (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach * wide + 0.5));
    const end = Math.min(length, Math.trunc(centre + reach * wide + 0.5));
    const parts = Array.from({ length: end - first }, (_, at) => weigh((at + first - centre + 0.5) * (1 / wide)));
    const sum = parts.reduce((one, other) => one + other, 0);
    return { first, parts: Int32Array.from(parts, (part) => Math.trunc((part / sum) * (1 << BITS) + 0.5)) };
  });
}

function alongRows(picture, across) {
  return across ? weighted(picture, across, blank(across.length, picture.height, picture.channels), true) : picture;
}

function alongColumns(picture, down) {
  return down ? weighted(picture, down, blank(picture.width, down.length, picture.channels), false) : picture;
}

function weighted({ width, channels, data }, all, made, row) {
  const step = row ? channels : width * channels;
  for (let y = 0; y < made.height; y++) {
    for (let x = 0; x < made.width; x++) {
      const { first, parts } = all[row ? x : y];
      const begin = row ? (y * width + first) * channels : (first * width + x) * channels;
      for (let channel = 0; channel < channels; channel++) {
        let sum = 1 << (BITS - 1);
        for (let at = 0; at < parts.length; at++) sum += parts[at] * data[begin + channel + at * step];
        made.data[(y * made.width + x) * channels + channel] = sum >> BITS; // a clamped array
      }
    }
  }
  return made;
}
