"""Shows options in the reference: of `Annotated[float, Meta(ge=0, description="…")]` the type, and
the description as a row.

An extension of Griffe, which reads the package for mkdocs.yml.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe

from prill.config.registry import list_options


class Options(griffe.Extension):
    """Takes bounds and descriptions out of annotations, and adds the descriptions to the `Args` of
    classes.
    """

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        attr.annotation = _plain_type(attr.annotation)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        for parameter in func.parameters:
            parameter.annotation = _plain_type(parameter.annotation)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        made = _classes().get(cls.path)
        if made is None or cls.docstring is None:
            return
        described = {
            option.name: option.description
            for option in list_options(made).values()
            if option.description
        }
        rows = [
            f"    {name}: {described[name]}"
            for name in inspect.signature(made).parameters
            if name in described
        ]
        if rows:
            paragraphs = cls.docstring.value.split("\n\n")
            starts = {paragraph.partition("\n")[0]: i for i, paragraph in enumerate(paragraphs)}
            if (place := starts.get("Args:")) is not None:
                rows = [*paragraphs.pop(place).splitlines()[1:], *rows]
            else:
                place = starts.get("Raises:", len(paragraphs))
            paragraphs.insert(place, "\n".join(["Args:", *rows]))
            cls.docstring.value = "\n\n".join(paragraphs)


@cache
def _classes() -> dict[str, type]:
    """The classes of the reference that have options, by their full names."""
    pages = (
        page.read_text(encoding="utf-8")
        for page in (Path(__file__).parent / "reference/api").glob("*.md")
    )
    faces = [
        import_module(name)
        for page in pages
        for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    ]
    things = [getattr(face, name) for face in faces for name in getattr(face, "__all__", ())]
    classes = [
        thing for thing in things if inspect.isclass(thing) and not issubclass(thing, BaseException)
    ]
    return {f"{thing.__module__}.{thing.__qualname__}": thing for thing in classes}


def _plain_type(annotation: Any) -> Any:
    """An annotation without bounds and descriptions."""
    if (
        isinstance(annotation, griffe.ExprSubscript)
        and annotation.canonical_path == "typing.Annotated"
    ):
        inner = annotation.slice
        return _plain_type(inner.elements[0] if isinstance(inner, griffe.ExprTuple) else inner)
    if isinstance(annotation, griffe.ExprBinOp):
        annotation.left, annotation.right = (
            _plain_type(annotation.left),
            _plain_type(annotation.right),
        )
    return annotation
