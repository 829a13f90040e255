// Answers of the server. static/answers.js has the same functions, and answers in the browser.

// Networks, as /api/models describes them, and the most bytes of a picture's file.
export const models = () => asked("api/models");

// Called when a network is chosen. The networks of a server are ready.
export function ready() {}

// Prediction of a network. picture is a file or a canvas; label the class whose pose is returned, null for the most
// active one; invert whether dark and light are exchanged, null if the network decides; compare whether to ask all others.
export async function predict({ model, picture, label, invert, compare }) {
  const form = new FormData();
  form.append("file", picture instanceof Blob ? picture : await fileOf(picture), "drawing.png");
  form.append("model", model.name);
  form.append("compare", String(compare));
  if (label !== null) form.append("class", label);
  if (invert !== null) form.append("invert", String(invert));
  return asked("api/predict", { method: "POST", body: form });
}

// Address of a picture of a pose of a class.
export async function draw({ model, label, pose }) {
  const { picture } = await asked("api/draw", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model: model.name, class: label, pose }),
  });
  return picture;
}

const fileOf = (canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));

async function asked(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer. Is paircaps serve still running?");
  }
  const said = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(said.detail ?? `The server answered ${response.status}.`);
  return said;
}
