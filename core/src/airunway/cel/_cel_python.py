"""CEL evaluation on the parse tree of cel-python.

cel-python's own evaluator answers some expressions differently from Kubernetes, without an error: ``has(spec.a.b)`` is
false if ``spec.a`` does not exist, ``1 == 1.0`` fails, a condition with an error counts as true, and loops are not
bounded. So only its grammar is used. What this evaluator does not support (optional syntax, bytes, unsigned numbers,
times, `math`, `format`) does not compile; every other answer is the same as cel-cpp's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import lark
from celpy.celparser import CELParseError, CELParser

from airunway.cel import _semantics as semantics
from airunway.cel._errors import CelCompileError, CelEvaluationError
from airunway.cel._literals import literal_value
from airunway.cel._loops import LOOPS, Frame, Later, Run, bound, either, iterate, truth, variable

__all__ = ["compile_program"]

_MAX_DEPTH = 32
_LOGIC = "found no matching overload for '{}' applied to '{}'"
_RELATIONS = {"relation_lt": "<", "relation_le": "<=", "relation_gt": ">", "relation_ge": ">="}
_ARITHMETIC = {
    "addition_add": "+",
    "addition_sub": "-",
    "multiplication_mul": "*",
    "multiplication_div": "/",
    "multiplication_mod": "%",
}
_MACROS = {"all": 2, "exists": 2, "exists_one": 2, "filter": 2, "map": 2}
_KEYWORDS = frozenset({"in", "true", "false", "null"})


class Node(NamedTuple):
    """A compiled part of an expression."""

    type: str
    """Its static type; ``dyn`` if it is not known."""
    run: Run
    """The function that computes its value."""


@dataclass(frozen=True)
class PythonExpression:
    """An expression, parsed with cel-python's grammar."""

    root: Node

    @property
    def result_type(self) -> str:
        return self.root.type

    def evaluate(self, bindings: Mapping[str, object]) -> object:
        try:
            return self.root.run(Frame(bindings))
        except RecursionError:
            raise CelEvaluationError("a value is nested too deep") from None


def compile_program(expression: str, variables: tuple[str, ...]) -> PythonExpression:
    """Parses, and checks names and obvious types. Raises CelCompileError."""
    try:
        tree = _parser().parse(expression)
    except CELParseError as error:
        raise CelCompileError(f"line {error.line}, column {error.column}: syntax error") from error
    return PythonExpression(_Compiler().compile(tree, dict.fromkeys(variables, "dyn"), 0))


@lru_cache(maxsize=1)
def _parser() -> CELParser:
    return CELParser()


def _typed(name: str, result: str, run: Run, *operands: Node, allowed: frozenset[str]) -> Node:
    """Returns a node whose operands must all have the same one of the `allowed` types, as far as types are known."""
    types = {operand.type for operand in operands} - {"dyn"}
    if types - allowed or len(types) > 1:
        raise CelCompileError(_LOGIC.format(name, ", ".join(operand.type for operand in operands)))
    return Node(result, run)


_BOOL = frozenset({"bool"})
_ORDERED = frozenset({"bool", "int", "double", "string"})
_NUMBER = frozenset({"int", "double"})
_SUMMABLE = _NUMBER | {"string", "list"}
_ANY = _ORDERED | {"list", "map", "null", "quantity"}


class _Compiler:
    """Compiles the parse tree to closures, with one method for each grammar rule that has a meaning."""

    def compile(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise CelCompileError(f"the expression is nested more than {_MAX_DEPTH} deep")
        while len(tree.children) == 1 and isinstance(tree.children[0], lark.Tree) and tree.data in _PASS_THROUGH:
            tree = tree.children[0]
        method = getattr(self, f"_{tree.data}", None)
        if method is None:
            raise CelCompileError(f"{tree.data.replace('_', ' ')} is not supported by cel-python")
        node: Node = method(tree, scope, depth + 1)
        return node

    def _operands(self, tree: Any, scope: Mapping[str, str], depth: int) -> tuple[str, Node, Node]:
        """Returns the operator and both operands of a binary node; a chain ``a || b || c`` counts as one level."""
        left, right = tree.children
        if left.data in ("conditionalor", "conditionaland"):
            return tree.data, self.compile(left, scope, depth - 1), self.compile(right, scope, depth)
        return left.data, self.compile(left.children[0], scope, depth), self.compile(right, scope, depth)

    def _expr(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        condition, yes, no = (self.compile(child, scope, depth) for child in tree.children)
        _typed("?:", "bool", condition.run, condition, allowed=_BOOL)

        def run(frame: Frame) -> Any:
            return yes.run(frame) if truth(condition.run(frame), "?:") else no.run(frame)

        types = {yes.type, no.type} - {"dyn"}
        return _typed(
            "?:",
            types.pop() if len(types) == 1 and "dyn" not in (yes.type, no.type) else "dyn",
            run,
            yes,
            no,
            allowed=_ANY,
        )

    def _conditionalor(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        _, left, right = self._operands(tree, scope, depth)
        return _typed(
            "||", "bool", lambda f: either(lambda: left.run(f), lambda: right.run(f), True), left, right, allowed=_BOOL
        )

    def _conditionaland(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        _, left, right = self._operands(tree, scope, depth)
        return _typed(
            "&&",
            "bool",
            lambda f: either(lambda: left.run(f), lambda: right.run(f), False),
            left,
            right,
            allowed=_BOOL,
        )

    def _relation(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        name, left, right = self._operands(tree, scope, depth)
        if name == "relation_in":
            if right.type not in ("dyn", "list", "map"):
                raise CelCompileError(_LOGIC.format("in", f"{left.type}, {right.type}"))
            return Node("bool", lambda f: semantics.contains(left.run(f), right.run(f)))
        if name in _RELATIONS:
            sign = _RELATIONS[name]
            return _typed(
                sign,
                "bool",
                lambda f: semantics.compare(sign, left.run(f), right.run(f)),
                left,
                right,
                allowed=_ORDERED,
            )
        same = name == "relation_eq"
        return _typed(
            "==" if same else "!=",
            "bool",
            lambda f: semantics.equal(left.run(f), right.run(f)) is same,
            left,
            right,
            allowed=_ANY,
        )

    def _addition(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        name, left, right = self._operands(tree, scope, depth)
        sign = _ARITHMETIC[name]
        result = left.type if left.type != "dyn" else right.type
        if sign == "+":
            return _typed(
                sign, result, lambda f: semantics.add(left.run(f), right.run(f)), left, right, allowed=_SUMMABLE
            )
        return _typed(
            sign,
            result,
            lambda f: semantics.arithmetic(sign, left.run(f), right.run(f)),
            left,
            right,
            allowed=_NUMBER - {"double"} if sign == "%" else _NUMBER,
        )

    _multiplication = _addition

    def _unary(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        sign, child = tree.children
        inner = _skipped(child)
        if inner.data == "unary" and len(inner.children) == 2 and inner.children[0].data == sign.data:
            # Like the parsers of cel-cpp and of Kubernetes: a doubled sign (`--x`, `!!x`) cancels out, for any operand.
            return self.compile(inner.children[1], scope, depth)
        operand = self.compile(child, scope, depth)
        if sign.data == "unary_not":
            return _typed("!", "bool", lambda f: not truth(operand.run(f), "!"), operand, allowed=_BOOL)
        return _typed("-", operand.type, lambda f: semantics.negate(operand.run(f)), operand, allowed=_NUMBER)

    def _member_dot(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        owner, name = self.compile(tree.children[0], scope, depth), _field_name(tree.children[1])
        if owner.type not in ("dyn", "map"):
            raise CelCompileError(f"a {owner.type} has no field {name}")
        return Node("dyn", lambda f: semantics.select(owner.run(f), name))

    def _member_index(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        owner, key = (self.compile(child, scope, depth) for child in tree.children)
        if owner.type not in ("dyn", "list", "map"):
            raise CelCompileError(_LOGIC.format("_[_]", f"{owner.type}, {key.type}"))
        return Node("dyn", lambda f: semantics.index(owner.run(f), key.run(f)))

    def _ident(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        name = str(tree.children[0])
        if name not in scope:
            raise CelCompileError(
                f"line {tree.children[0].line}, column {tree.children[0].column}: undeclared reference to '{name}'"
            )
        return Node(scope[name], lambda f: variable(f, name))

    def _paren_expr(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        return self.compile(tree.children[0], scope, depth)

    def _list_lit(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        items = [self.compile(child, scope, depth) for child in _arguments(tree.children)]
        return Node("list", lambda f: [item.run(f) for item in items])

    def _map_lit(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        parts = [self.compile(child, scope, depth) for child in _arguments(tree.children)]
        keys, values = parts[::2], parts[1::2]
        if any(key.type != "string" for key in keys):
            raise CelCompileError("map keys must be texts: others are not supported by cel-python")

        def run(frame: Frame) -> dict[str, Any]:
            made = {key.run(frame): value.run(frame) for key, value in zip(keys, values, strict=True)}
            if len(made) < len(keys):
                raise CelEvaluationError("a key is there twice")
            return made

        return Node("map", run)

    def _literal(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        type_, value = literal_value(tree.children[0])
        return Node(type_, lambda f: value)

    def _ident_arg(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        name, arguments = str(tree.children[0]), list(_arguments(tree.children[1:]))
        if name == "has":
            return self._has(arguments, scope, depth)
        return self._call(name, [self.compile(argument, scope, depth) for argument in arguments], member=False)

    def _member_dot_arg(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        owner, name, arguments = tree.children[0], str(tree.children[1]), list(_arguments(tree.children[2:]))
        if name == "bind" and _ident_name(owner) == "cel":
            return self._bind(arguments, scope, depth)
        if name in _MACROS:
            return self._macro(name, owner, arguments, scope, depth)
        values = [self.compile(owner, scope, depth), *(self.compile(argument, scope, depth) for argument in arguments)]
        return self._call(name, values, member=True)

    def _call(self, name: str, arguments: list[Node], *, member: bool) -> Node:
        overload = semantics.FUNCTIONS.get((name, member))
        if overload is None:
            raise CelCompileError(f"undeclared reference to '{name}' (cel-python has fewer functions than cel-cpp)")
        wrong = not overload.accepts(len(arguments)) or any(
            wanted != "dyn" and given.type != "dyn" and given.type not in wanted.split("|")
            for wanted, given in zip(overload.parameters, arguments, strict=False)
        )
        # cel-cpp accepts a bool as an integer only if the static type is not known.
        wrong = wrong or (name == "int" and arguments[0].type == "bool")
        if wrong:
            raise CelCompileError(_LOGIC.format(name, ", ".join(argument.type for argument in arguments)))
        return Node(overload.result, lambda f: overload(name, [argument.run(f) for argument in arguments]))

    def _has(self, arguments: list[Any], scope: Mapping[str, str], depth: int) -> Node:
        selected = _unwrapped(arguments[0]) if len(arguments) == 1 else None
        if selected is None or selected.data != "member_dot":
            raise CelCompileError("has() takes one field selection, such as has(spec.image)")
        owner, name = self.compile(selected.children[0], scope, depth), _field_name(selected.children[1])

        def run(frame: Frame) -> bool:
            value = owner.run(frame)
            if not isinstance(value, dict):
                semantics.select(value, name)
            return name in value

        return Node("bool", run)

    def _bind(self, arguments: list[Any], scope: Mapping[str, str], depth: int) -> Node:
        name = _ident_name(arguments[0]) if len(arguments) == 3 else None
        if name is None:
            raise CelCompileError("cel.bind() takes a name, its value and an expression")
        value = self.compile(arguments[1], scope, depth)
        body = self.compile(arguments[2], {**scope, name: value.type}, depth)
        return Node(body.type, lambda f: body.run(bound(f, name, Later(lambda: value.run(f)))))

    def _macro(self, name: str, owner: Any, arguments: list[Any], scope: Mapping[str, str], depth: int) -> Node:
        variable = _ident_name(arguments[0]) if arguments else None
        if variable is None or len(arguments) not in ((2, 3) if name == "map" else (2,)):
            raise CelCompileError(f"{name}() takes a name and an expression")
        items = self.compile(owner, scope, depth)
        if items.type not in ("dyn", "list", "map"):
            raise CelCompileError(f"{name}() needs a list or a map, not a {items.type}")
        bodies = [self.compile(body, {**scope, variable: "dyn"}, depth) for body in arguments[1:]]
        if (name != "map" or len(bodies) == 2) and bodies[0].type not in ("dyn", "bool"):
            raise CelCompileError(f"{name}() needs a condition, not a {bodies[0].type}")
        run = LOOPS[name]
        result = "list" if name in ("map", "filter") else "bool"
        return Node(result, lambda f: run(iterate(f, items.run(f), variable), [body.run for body in bodies]))


_PASS_THROUGH = frozenset(
    ("expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member", "primary")
)


def _arguments(children: list[Any]) -> Iterator[Any]:
    for child in children:
        if child is not None:
            yield from child.children


def _skipped(tree: Any) -> Any:
    """Returns the tree without the rules at its top that have only one child."""
    while (
        isinstance(tree, lark.Tree)
        and tree.data in _PASS_THROUGH
        and len(tree.children) == 1
        and isinstance(tree.children[0], lark.Tree)
    ):
        tree = tree.children[0]
    return tree


def _unwrapped(tree: Any) -> Any:
    while isinstance(tree, lark.Tree) and tree.data in _PASS_THROUGH and len(tree.children) == 1:
        tree = tree.children[0]
    return tree


def _ident_name(tree: Any) -> str | None:
    tree = _unwrapped(tree)
    return str(tree.children[0]) if isinstance(tree, lark.Tree) and tree.data == "ident" else None


def _field_name(token: Any) -> str:
    if str(token) in _KEYWORDS:
        raise CelCompileError(f"line {token.line}, column {token.column}: '{token}' is a keyword, write ['{token}']")
    return str(token)
