"""CEL evaluation on the parse tree of cel-python.

cel-python's own evaluator answers some expressions differently from Kubernetes, without an error: ``has(spec.a.b)`` is
false if ``spec.a`` does not exist, ``1 == 1.0`` fails, a condition with an error counts as true, and loops are not
bounded. So only its grammar is used. What this evaluator does not support (optional syntax, bytes, unsigned numbers,
times, `math`, `format`) does not compile; every other answer is the same as cel-cpp's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import lark
from celpy.celparser import CELParseError, CELParser

from airunway.cel import _semantics as semantics
from airunway.cel._cost import MAX_STEPS, CelCompileError, CelEvaluationError

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
        tree = _skipped(tree)
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

    def _conditionaland(self, tree: Any, scope: Mapping[str, str], depth: int) -> Node:
        _, left, right = self._operands(tree, scope, depth)
        decisive = tree.data == "conditionalor"

        def run(frame: Frame) -> bool:
            return decided((partial(left.run, frame), partial(right.run, frame)), decisive)

        return _typed("||" if decisive else "&&", "bool", run, left, right, allowed=_BOOL)

    _conditionalor = _conditionaland

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
        type_, value = _literal_value(tree.children[0])
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
        if name in _LOOPS:
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
        selected = _skipped(arguments[0]) if len(arguments) == 1 else None
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
        run = _LOOPS[name]
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


def _ident_name(tree: Any) -> str | None:
    tree = _skipped(tree)
    return str(tree.children[0]) if isinstance(tree, lark.Tree) and tree.data == "ident" else None


def _field_name(token: Any) -> str:
    if str(token) in _KEYWORDS:
        raise CelCompileError(f"line {token.line}, column {token.column}: '{token}' is a keyword, write ['{token}']")
    return str(token)


class BudgetExceededError(CelEvaluationError):
    """All loop steps are used up. Unlike other errors, ``||`` and ``exists`` do not ignore it."""


class Frame:
    """The state of one evaluation: the values of variables, and the steps of all loops together."""

    __slots__ = ("taken", "values")

    def __init__(self, values: Mapping[str, object], taken: list[int] | None = None) -> None:
        self.values = dict(values)
        self.taken = [0] if taken is None else taken

    def step(self) -> None:
        self.taken[0] += 1
        if self.taken[0] > MAX_STEPS:
            raise BudgetExceededError(f"too expensive: more than {MAX_STEPS} loop steps")


Run: TypeAlias = Callable[[Frame], Any]


def truth(value: Any, name: str) -> bool:
    """Returns `value` as a condition. Raises CelEvaluationError if it is not a bool."""
    if not isinstance(value, bool):
        raise CelEvaluationError(f"no matching overload for {name}: the condition is not a bool")
    return value


def decided(conditions: Iterable[Callable[[], Any]], decisive: bool) -> bool:
    """``||`` and ``exists`` (decisive True), ``&&`` and ``all`` (False): a decisive condition wins over errors."""
    problem: CelEvaluationError | None = None
    for condition in conditions:
        try:
            if truth(condition(), "logic") is decisive:
                return decisive
        except BudgetExceededError:
            raise
        except CelEvaluationError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return not decisive


class Later:
    """The value of a ``cel.bind``, computed at its first use: an error in an unused value does not matter."""

    __slots__ = ("_compute", "_value")

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def value(self) -> Any:
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value


def variable(frame: Frame, name: str) -> Any:
    """Returns the value of a variable. Raises CelEvaluationError if it has none."""
    if name not in frame.values:
        raise CelEvaluationError(f"no value for {name}")
    value = frame.values[name]
    return semantics.checked(value.value() if isinstance(value, Later) else value)


def bound(frame: Frame, name: str, value: Any) -> Frame:
    """Returns `frame` with one more variable."""
    return Frame({**frame.values, name: value}, frame.taken)


def iterate(frame: Frame, items: Any, name: str) -> Iterator[tuple[Frame, Any]]:
    """Yields for each item of a list (key of a map) the frame with the item as variable `name`, and the item."""
    if not isinstance(items, list | dict):
        raise CelEvaluationError("a loop needs a list or a map")
    for item in items:
        frame.step()
        yield bound(frame, name, item), item


def _all(steps: Iterator[tuple[Frame, Any]], bodies: list[Run], *, decisive: bool = False) -> bool:
    return decided((partial(bodies[0], frame) for frame, _ in steps), decisive)


def _exists_one(steps: Iterator[tuple[Frame, Any]], bodies: list[Run]) -> bool:
    return sum(truth(bodies[0](frame), "exists_one") for frame, _ in steps) == 1


def _filter(steps: Iterator[tuple[Frame, Any]], bodies: list[Run]) -> list[Any]:
    return [item for frame, item in steps if truth(bodies[0](frame), "filter")]


def _map(steps: Iterator[tuple[Frame, Any]], bodies: list[Run]) -> list[Any]:
    if len(bodies) == 1:
        return [bodies[0](frame) for frame, _ in steps]
    return [bodies[1](frame) for frame, _ in steps if truth(bodies[0](frame), "map")]


_LOOPS: Mapping[str, Callable[..., Any]] = {
    "all": _all,
    "exists": partial(_all, decisive=True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[xX][0-9a-fA-F]{2}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {c: c for c in "\\'\"`?"}


def _literal_value(token: Any) -> tuple[str, Any]:
    """Returns the static type and the value of a literal. Raises CelCompileError for types that are not supported."""
    text = str(token)
    match token.type:
        case "BOOL_LIT":
            return "bool", text == "true"
        case "NULL_LIT":
            return "null", None
        case "FLOAT_LIT":
            if re.match(r"-?[0-9]+\.(?![0-9])", text):
                raise CelCompileError(f"the number {text} needs a digit after its point")
            return "double", float(text)
        case "INT_LIT":
            value = int(text, 16 if "0x" in text else 10)
            if not -(2**63) <= value < 2**63:
                raise CelCompileError(f"{text} is out of the range of an integer")
            return "int", value
        case "STRING_LIT" | "MLSTRING_LIT":
            return "string", _unquoted(text)
        case _:
            raise CelCompileError(f"the literal {text} is of a type that is not supported by cel-python")


def _unquoted(text: str) -> str:
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    width = 3 if body[:3] in ("'''", '"""') and len(body) >= 6 else 1
    body = body[width:-width]
    if raw and body.endswith("\\") and width == 1:
        raise CelCompileError("a raw text cannot end with a backslash")
    return body if raw else _ESCAPE.sub(_unescape, body)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code in _ESCAPES:
        return _ESCAPES[code]
    digits, base = (code, 8) if code[0].isdigit() else (code[1:], 16)
    try:
        point = int(digits, base)
    except ValueError:
        raise CelCompileError(f"unknown escape \\{code} in a text") from None
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise CelCompileError(f"\\{code} is not a character")
    return chr(point)
