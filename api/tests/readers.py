"""Detection of the API fields that a program reads: a small type inference over Python's AST.

Types come from annotations (parameters, variables, fields, results of properties) and propagate through attributes,
assignments, loops and `or`. to_json reads all fields of an object without nested objects.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, get_args, get_origin

from pydantic import BaseModel

import rlt_api

API = Path(__file__).parents[1] / "rlt_api"
Field = tuple[type[BaseModel], str]
Type = Any
"""A class, or a generic alias such as list[Reward]."""


def read_fields(*sources: Path) -> set[Field]:
    """Return the fields of pydantic models that modules, or modules below folders, read.

    A read through a class is also a read of its subclasses' field: a function with the class as parameter takes them.
    """
    classes = {cls.__name__: cls for cls in _models()}
    trees = [
        ast.parse(path.read_text())
        for source in sources
        for path in sorted(source.rglob("*.py") if source.is_dir() else [source])
        if "tests" not in path.parts
    ]
    api = [ast.parse(path.read_text()) for path in API.rglob("*.py")]  # dataclasses in the API may contain models
    own = {node.name: node for tree in (*api, *trees) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    reader = _Reader(classes, {name: node for name, node in own.items() if name not in classes})
    for node in reader.own.values():
        reader.declare(node)
    for tree in (*api, *trees):
        reader.results |= {node.name: node.returns for node in tree.body if isinstance(node, ast.FunctionDef)}
    for _ in range(2):  # an attribute may be used before its declaration
        for tree in trees:
            reader.scope(tree.body, {}, None)
    return {
        (each, name)
        for cls, name in reader.found
        for each in classes.values()
        if issubclass(each, cls) and name in each.model_fields
    }


def field_of(model: type[BaseModel], path: str) -> Field:
    """Return class and attribute of a leaf, such as spec.cluster.workers[].replicas."""
    here: type[BaseModel] = model
    *way, last = path.replace("[]", "").split(".")[1:]
    for part in way:
        name = _by_alias(here, part)
        here = next(cls for cls in _classes(here.model_fields[name].annotation))
    return here, _by_alias(here, last)


def _by_alias(model: type[BaseModel], alias: str) -> str:
    return next(name for name, field in model.model_fields.items() if field.alias == alias)


def _models() -> Iterator[type[BaseModel]]:
    for module in [import_module(each.name) for each in walk_packages(rlt_api.__path__, "rlt_api.")]:
        for _, each in inspect.getmembers(module, inspect.isclass):
            if issubclass(each, BaseModel):
                yield each


def _classes(annotation: Type) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation such as Annotated[list[Reward], ...] | None."""
    if inspect.isclass(annotation) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for each in get_args(annotation):
        yield from _classes(each)


class _Reader:
    def __init__(self, classes: Mapping[str, type[BaseModel]], own: Mapping[str, ast.ClassDef]) -> None:
        self.classes = classes
        self.own = own
        self.attributes: dict[tuple[str, str], Type] = {}
        """(own class, attribute) -> type."""
        self.results: dict[str, ast.expr | None] = {}
        """Function -> its return annotation."""
        self.found: set[Field] = set()

    def scope(self, body: list[ast.stmt], names: dict[str, Type], inside: str | None) -> None:
        """Process the statements of a module, class or function; `names` are the known types of its names."""
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                self.declare(statement)
                self.scope(statement.body, dict(names), statement.name)
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.function(statement, dict(names), inside)
            else:
                self.statement(statement, names, inside)

    def declare(self, node: ast.ClassDef) -> None:
        """Record the annotated attributes of a class."""
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                self.attributes[node.name, item.target.id] = self.annotation(item.annotation)

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, names: dict[str, Type], inside: str | None
    ) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            names.pop(argument.arg, None)
            if argument.annotation:
                names[argument.arg] = self.annotation(argument.annotation)
        if inside and arguments and arguments[0].arg == "self":
            names["self"] = inside
        if inside and node.returns:
            self.attributes.setdefault((inside, node.name), self.annotation(node.returns))
        self.scope(node.body, names, inside)

    def statement(self, node: ast.stmt, names: dict[str, Type], inside: str | None) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=parts)):
                for one, part in zip(targets, parts, strict=True):
                    self.assign(one, self.infer(part, names), names)
                return
            case ast.Assign(targets=[target]):
                self.assign(target, self.infer(node.value, names), names)
            case ast.AnnAssign(target=target) if node.value:
                self.infer(node.value, names)
                self.assign(target, self.annotation(node.annotation), names)
            case ast.For() | ast.AsyncFor():
                self.assign(node.target, _item(self.infer(node.iter, names)), names)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.infer(child, names)
            elif isinstance(child, ast.stmt):
                self.scope([child], names, inside)
            else:  # with, except, match
                for inner in ast.iter_child_nodes(child):
                    if isinstance(inner, ast.expr):
                        self.infer(inner, names)
                    elif isinstance(inner, ast.stmt):
                        self.scope([inner], names, inside)

    def assign(self, target: ast.expr, type: Type, names: dict[str, Type]) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = type
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if isinstance(names.get("self"), str) and type:
                self.attributes[names["self"], name] = type
            case ast.Tuple(elts=[one]):  # (workers,) = spec.cluster.workers
                self.assign(one, _item(type), names)
            case ast.Tuple(elts=[_, last]):  # for index, group in enumerate(groups)
                self.assign(last, type, names)

    def infer(self, node: ast.expr, names: dict[str, Type]) -> Type:
        """Return the type of an expression, None if unknown, and record the fields that it reads."""
        match node:
            case ast.Name(id=name):
                return names.get(name)
            case ast.Attribute(value=value, attr=name):
                return self.attribute(self.infer(value, names), name)
            case ast.BoolOp(values=values):
                return next((each for each in [self.infer(value, names) for value in values] if each), None)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.infer(test, names)
                one = self.infer(body, names)
                other = self.infer(orelse, names)
                return one or other
            case ast.Subscript(value=value, slice=index):
                self.infer(index, names)
                return _item(self.infer(value, names))
            case ast.NamedExpr(target=target, value=value):
                inferred = self.infer(value, names)
                self.assign(target, inferred, names)
                return inferred
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = dict(names)
                for loop in node.generators:
                    self.assign(loop.target, _item(self.infer(loop.iter, inner)), inner)
                    for test in loop.ifs:
                        self.infer(test, inner)
                parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                for part in parts:
                    self.infer(part, inner)
                return None
            case ast.Call(func=function, args=arguments):
                return self.call(function, [*arguments, *(each.value for each in node.keywords)], names)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.infer(child, names)
        return None

    def call(self, function: ast.expr, arguments: list[ast.expr], names: dict[str, Type]) -> Type:
        given = [self.infer(each, names) for each in arguments]
        if isinstance(function, ast.Name):
            if function.id in self.own or function.id in self.classes:
                return self.classes.get(function.id, function.id)
            if (result := self.results.get(function.id)) is not None:
                return self.annotation(result)
            return given[0] if function.id in ("enumerate", "sorted", "list", "reversed") and given else None
        if isinstance(function, ast.Attribute):
            owner = self.infer(function.value, names)
            if function.attr in ("items", "values"):  # of a dictionary: the type of its values
                return owner
            if function.attr == "to_json":
                self.found |= {(cls, name) for cls in _classes(owner) if _is_flat(cls) for name in cls.model_fields}
            return self.attribute(owner, function.attr)
        return None

    def attribute(self, type: Type, name: str) -> Type:
        if isinstance(type, str):  # a class of the program
            known = self.attributes.get((type, name))
            bases = self.own[type].bases if type in self.own else []
            return known or next(
                (self.attributes.get((base.id, name)) for base in bases if isinstance(base, ast.Name)), None
            )
        for cls in _classes(type):
            if name in cls.model_fields:
                self.found.add((cls, name))
                self.found |= {(base, name) for base in cls.__mro__ if name in getattr(base, "model_fields", ())}
                return cls.model_fields[name].annotation
        return None

    def annotation(self, node: ast.expr) -> Type:
        """Return the type that an annotation names; for a list of known types, that list."""
        match node:
            case ast.Constant(value=str() as text):
                return self.annotation(ast.parse(text, mode="eval").body)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self.classes.get(name) or (name if name in self.own else None)
            case ast.BinOp(left=left, right=right):
                return self.annotation(left) or self.annotation(right)
            case ast.Subscript(slice=index):
                inner = index.elts[-1] if isinstance(index, ast.Tuple) else index
                inner_type = self.annotation(inner)
                return list[inner_type] if inspect.isclass(inner_type) else inner_type  # type: ignore[valid-type]
        return None


def _item(type: Type) -> Type:
    """Return the item type of a list or an optional list."""
    origin: Any = get_origin(type)
    if origin in (list, tuple, dict):
        return get_args(type)[-1]
    for each in get_args(type):
        if get_origin(each) is list:
            return get_args(each)[0]
        if get_origin(each) is typing.Annotated:
            return _item(get_args(each)[0])
    return type


def _is_flat(model: type[BaseModel]) -> bool:
    """Return whether a model contains no other models."""
    return not any(True for field in model.model_fields.values() for _ in _classes(field.annotation))
