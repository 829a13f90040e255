// Builds the page of the interface from its OpenAPI description.

import { $, element } from "./view.js";

const description = await (await fetch("openapi.json")).json();
const resolve = (schema) => (schema?.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema);

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.join(", ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.type === "object" && schema.additionalProperties) return `${kind(schema.additionalProperties)} by name`;
  if (schema.contentMediaType || schema.format === "binary") return "file";
  return schema.type ?? "";
}

function table(schema) {
  const { properties = {}, required = [] } = resolve(schema) ?? {};
  const rows = Object.entries(properties).map(([name, field]) =>
    element(
      "tr",
      {},
      element("td", {}, element("code", {}, name)),
      element("td", {}, kind(field)),
      element("td", {}, [field.description ?? "", required.includes(name) ? "" : `default ${JSON.stringify(field.default ?? null)}`].filter(Boolean).join("; ")),
    ),
  );
  return element("table", {}, ...rows);
}

function used(schema, found = new Set()) {
  const name = schema?.$ref?.split("/").pop();
  if (name && !found.has(name)) {
    found.add(name);
    for (const field of Object.values(resolve(schema).properties ?? {})) used(field, found);
  }
  for (const inner of [schema?.items, schema?.additionalProperties, ...(schema?.anyOf ?? [])]) if (inner) used(inner, found);
  return found;
}

$("about").textContent = description.info.description;
$("example").textContent = `curl -F file=@picture.png ${location.origin}/api/predict`;
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, call] of Object.entries(methods)) {
    const title = element("h2", {}, element("span", { class: "method" }, method.toUpperCase()), ` ${path}`);
    const parts = [title, element("p", {}, `${call.summary}.`)];
    const body = Object.entries(call.requestBody?.content ?? {})[0];
    if (body) parts.push(element("h3", {}, `Request (${body[0]})`), table(body[1].schema));
    const answer = call.responses["200"].content["application/json"].schema;
    for (const [place, name] of [...used(answer)].entries()) {
      parts.push(element("h3", {}, place ? name : "Response"), table({ $ref: `#/components/schemas/${name}` }));
    }
    const refused = Object.entries(call.responses).filter(([code]) => code !== "200");
    if (refused.length) {
      const rows = refused.map(([code, { description: why }]) =>
        element("tr", {}, element("td", {}, element("code", {}, code)), element("td", {}, why)));
      parts.push(element("h3", {}, "Errors"), element("table", {}, ...rows));
    }
    $("calls").append(element("section", {}, ...parts));
  }
}
