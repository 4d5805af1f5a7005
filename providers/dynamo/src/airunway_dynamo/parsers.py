"""What Dynamo has in place of options of the engines' own HTTP servers.

Its frontend makes the answers: the worker only tells it by which parsers, and with which chat template. The options are
those of ``dynamo.vllm``, ``dynamo.sglang`` and ``dynamo.trtllm`` in every release since 0.5.1. The parsers are compiled
into the frontend (``lib/parsers`` of ai-dynamo/dynamo), and a worker exits at a name that is none of them. Some have
other names in the engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airunway.sdk import Finding, Instead, ModelDeployment, Version, given_flags, ignored

TOOL_PARSERS = frozenset(
    {"hermes", "nemotron_deci", "llama3_json", "mistral", "phi4", "pythonic", "harmony", "jamba", "default", "qwen25"}
    | {"deepseek_v3", "deepseek_v3_1", "deepseek_v3_2", "deepseek_v4", "deepseek-v4", "deepseekv4", "qwen3_coder"}
    | {"minimax_m2", "glm47", "kimi_k2", "gemma4", "gemma-4", "nemotron_nano"}
)
REASONING_PARSERS = frozenset(
    {"deepseek_r1", "basic", "gpt_oss", "qwen3", "nemotron_deci", "kimi", "kimi_k25", "step3", "mistral", "granite"}
    | {"nemotron_nano", "nemotron3", "glm45", "minimax_append_think"}
)
"""The names in the newest sources that were read; older releases have fewer."""

_TOOLS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "deepseek_v31": "deepseek_v3_1",
        "deepseek_v32": "deepseek_v3_2",
        "llama4_json": "llama3_json",
        "llama4_pythonic": "pythonic",
        "openai": "harmony",
        "phi4_mini_json": "phi4",
    },
    "sglang": {
        "deepseekv3": "deepseek_v3",
        "deepseekv31": "deepseek_v3_1",
        "deepseekv32": "deepseek_v3_2",
        "gpt-oss": "harmony",
        "llama3": "llama3_json",
    },
    "trtllm": {},
}
_REASONING: Mapping[str, Mapping[str, str]] = {
    "vllm": {"openai_gptoss": "gpt_oss"},
    "sglang": {"deepseek-r1": "deepseek_r1", "gpt-oss": "gpt_oss"},
    "trtllm": {"deepseek-r1": "deepseek_r1", "gpt-oss": "gpt_oss"},
}
"""The engines' names of parsers that Dynamo calls otherwise."""

_TOOL_OPTION = {"vllm": "tool-call-parser", "sglang": "tool-call-parser", "trtllm": "tool-parser"}
_OWN = {"tool": "dyn-tool-call-parser", "reasoning": "dyn-reasoning-parser", "template": "custom-jinja-template"}

_PAIRED: Version = (1, 3, 0)
"""Since then SGLang's worker takes its own reasoning parser, which guides decoding, beside Dynamo's."""


def instead_of(deployment: ModelDeployment, engine: str, version: Version) -> dict[str, Instead]:
    """Dynamo's options by the plain names of the engine's own."""
    given = given_flags(deployment)
    if engine == "sglang" and "use-sglang-tokenizer" in given:
        return {}  # then the worker makes the answers itself
    found = {
        _TOOL_OPTION[engine]: Instead(option=_OWN["tool"], values=_TOOLS[engine]),
        "reasoning-parser": Instead(
            option=_OWN["reasoning"],
            values=_REASONING[engine],
            # The engine's own one keeps guided decoding away from the thoughts.
            keeps=engine == "vllm" or (engine == "sglang" and version >= _PAIRED),
        ),
    }
    if engine == "vllm":
        # Dynamo looks for tool calls wherever it is told the parser.
        found["enable-auto-tool-choice"] = Instead()
    if engine in ("vllm", "trtllm") or "/" in value_of(deployment, "chat-template"):
        found["chat-template"] = Instead(option=_OWN["template"], refusal=_inline(deployment))
    return found


def _inline(deployment: ModelDeployment) -> str:
    """Why a chat template that is no file cannot be honoured; empty for a file."""
    template = value_of(deployment, "chat-template")
    if not any(sign in template for sign in "{}\n"):
        return ""
    return (
        "Dynamo reads a chat template from a file: put it on a volume of spec.model.storage, and write its path as "
        "custom-jinja-template"
    )


def parser_findings(deployment: ModelDeployment, engine: str, version: Version) -> Iterator[Finding]:
    """Warnings about parsers that Dynamo may not have, and about tool calls without a parser."""
    given = given_flags(deployment)
    found = instead_of(deployment, engine, version)
    kinds = (
        (_TOOL_OPTION[engine], _OWN["tool"], TOOL_PARSERS),
        ("reasoning-parser", _OWN["reasoning"], REASONING_PARSERS),
    )
    for option, own, known in kinds:
        name = value_of(deployment, own) or value_of(deployment, option)
        said = own if own in given else option
        if name and option in found and found[option].values.get(name, name) not in known:
            text = (
                f"Dynamo's frontend parses answers by its own parsers, and {name:.64} is none that is known: a worker "
                f"exits at an unknown one; known are {', '.join(sorted(known))}"
            )
            yield Finding(path=given[said], reason="MayNotStart", message=text)
    wishes = "enable-auto-tool-choice"
    if wishes in given and wishes in found and not {"tool-call-parser", _OWN["tool"]} & set(given):
        text = f"{wishes} has no effect with Dynamo without a parser of tool calls: set {_OWN['tool']}"
        yield ignored(given[wishes], text)


def value_of(deployment: ModelDeployment, option: str) -> str:
    """The value that the user gives an option; empty if there is none."""
    settings = deployment.spec.engine
    for key, value in settings.args.items():
        if key.replace("_", "-") == option:
            return value
    words = list(settings.extra_args)
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if word.startswith("-") and name.lstrip("-").replace("_", "-") == option:
            return value if equals else following
    return ""
