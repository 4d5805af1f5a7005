"""AI Runway: one Kubernetes API, `ModelDeployment`, for LLM inference.

Packages in import order: each imports only from those before it (``.importlinter`` has the exact layers).

``resource``    Kubernetes objects as plain dicts: keys, conditions, owners, quantities, digests
``cel``         one interface to two CEL evaluators
``api``         the custom resources: pydantic types, CRDs, defaults
``validation``  the rules of admission, run in process
``status``      reasons, phases, conditions, root causes
``configs``     runtime configs: resolution, merge, hash, label patterns, path templates
``engines``     command-line flags of the inference engines
``revisions``   what a deployment runs with, and when something newer is taken
``plugins``     the provider contract (hookspecs), the registry, the host
``sdk``         everything that a provider may import
``selection``   engine and provider selection
``sizing``      GPU memory: weights, KV cache, the engine's reserve, free GPUs, where a model fits
``artifacts``   cached weights: names, claims, Jobs, results, what becomes of an artifact
``kube``        a Kubernetes client: reflector, work queue, controller, lease
``templates``   model templates: which one a deployment uses, what it gives, what it keeps warm
``view``        what is shown of a deployment and of a fleet: headline, tree, timeline, load, an answer, as data
``owned``       the objects that are made for an owner: plan, create-only apply, conflicts
``snapshots``   reads, and follows, the objects that a view is made of; asks a deployment's own server
``process``     a long-running process: its parts and caches, signals, probes, metrics, logs
``routing``     routes: choice of Gateway, claims, the objects of a route, the Gateway's verdict
``gateway``     the part that makes routes, pools and endpoint pickers
``modelcache``  the part that fetches weights: artifacts, claims, Jobs, and what deployments learn of them
``runtime``     the reconciler that every provider shares
``controller``  the reconcilers of the core
``webhook``     the admission webhook and its certificates
``rbac``        the RBAC rules and admission policies of each account
``upgrades``    the effect of new CRDs on existing objects, ours and those of upstreams
``tools``       what people's tools work out: who gets a deployment, whether a model fits, where a field comes from
``doctor``      checks of an installation
``install``     the charts in the wheels, installed by helm
``cli``         the `airunway` command

Other distributions: ``airunway-testing`` (a control plane, faults, the sandbox, conformance; never imported from here),
``airunway-downloader`` (runs in an image of its own), the providers, and a simulator for each.
"""

__version__ = "0.1.0"
