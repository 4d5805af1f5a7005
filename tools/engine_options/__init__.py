"""The command-line options of inference engines, as their own parsers know them.

To record a release: download its source archive or wheel from PyPI, unpack it, and run

    python -m tools.engine_options vllm=FOLDER/vllm-0.23.0 ray=FOLDER/vllm-0.22.0 dynamo=FOLDER/ai_dynamo-1.6.1 ...

with an environment that has pydantic, regex, msgspec, cachetools and cloudpickle. Each folder's name ends with the
release. The parser of that release runs in a process of its own (`reader`), with everything that it imports besides
its own argument modules replaced by stand-ins: neither torch nor a GPU is needed. What is recorded already stays, so
that one release can be added.

A program is recorded with everything that its command line takes. Dynamo's workers build an engine's own parser in:
for them, the release of vLLM and SGLang that Dynamo's package pins must be unpacked beside it. Ray fills vLLM's
argument classes by name: ``ray=`` is given a release of vLLM, and records the names of their fields.
"""
