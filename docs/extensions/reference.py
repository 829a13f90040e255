"""Small changes to what autodoc writes, so that the API reference reads well."""

import dataclasses
import re
from inspect import ismodule

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyClasslike, PyObject

import paircaps


def skip_fields(app: Sphinx, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of a named tuple: its docstring has described them."""
    return True if type(member).__name__ == "_tuplegetter" else None


def show_defaults(
    app: Sphinx, what: str, name: str, value: object, options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None] | None:
    """Write the default of a dataclass's field as it is made, where its signature has ``<factory>`` alone."""
    if signature is None or not dataclasses.is_dataclass(value):
        return None
    made = {field.name: shown_factory(field.default_factory) for field in dataclasses.fields(value)}
    return re.sub(r"(\w+)=<factory>", lambda match: f"{match[1]}={made[match[1]]}", signature), result


def shown_factory(factory: object) -> str:
    """What a ``default_factory`` makes, as code: ``{}``, ``()``, ``Fitting()``; ``...`` where it has no name."""
    if factory in (dict, list, tuple):
        return repr(factory())  # pyright: ignore[reportCallIssue]
    return f"{factory.__name__}()" if isinstance(factory, type) else "..."


def shorten_types(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Write the types of attributes without their modules, as those of parameters are: ``Tensor``."""
    for number, line in enumerate(lines):
        if line.startswith(":vartype"):
            lines[number] = re.sub(r"\b(?:\w+\.)+(?=\w)", "", line)


def errors_last(app: Sphinx, domain: str, kind: str, content: addnodes.desc_content) -> None:
    """Put errors behind the type of the result, which autodoc appends to them."""
    for fields in content.findall(nodes.field_list):
        fields.children.sort(key=lambda field: field[0].astext().startswith("raises"))


def mend_backlinks(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Lead from source code to names that the reference has in ``paircaps`` itself, wherever they are defined."""
    if page.startswith("_modules/"):
        names = "|".join(name for name in paircaps.__all__ if not ismodule(getattr(paircaps, name)))
        link = rf"(docs/api/paircaps\.html#paircaps)\.[\w.]*?\b({names})\b"
        context["body"] = re.sub(link, r"\1.\2", context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to autodoc, and call the fields of a class attributes, where Sphinx calls them variables."""
    for kind in (PyObject, PyClasslike):
        for field in kind.doc_field_types:
            if field.name == "variable":
                field.label = "Attributes"
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-signature", show_defaults)
    app.connect("object-description-transform", errors_last, priority=600)  # after autodoc's types
    app.connect("autodoc-process-docstring", shorten_types, priority=600)  # after napoleon, which writes them
    app.connect("html-page-context", mend_backlinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
