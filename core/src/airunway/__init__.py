"""AI Runway: one Kubernetes API, `ModelDeployment`, for LLM inference.

Rooms, in the order in which imports may point (a room imports only from rooms named before it):

``resource``    Kubernetes objects as plain dicts: keys, conditions, owners, quantities, digests
``cel``         the one adapter to a CEL evaluator
``api``         the custom resources: pydantic types, CRDs, defaults
``validation``  the rules of admission, run in process
``status``      reasons, phases, conditions: facts in, status out
``engines``     command-line flags of the inference engines
``plugins``     the provider contract (hookspecs), the registry, the host
``sdk``         what a provider imports, and all of it: the contract's values and a kit
``selection``   engine and provider selection
``kube``        client, reflector, work queue, controller, lease: Kubernetes without ModelDeployments
``process``     the shell of a long-running process: signals, probes, metrics, logs
``runtime``     the one loop that every provider runs in
``controller``  the core's reconcilers
``webhook``     admission: the checks that need the cluster, and the certificates they are served with
``upgrades``    what a new CRD, ours or an upstream's, would do to what is there
``doctor``      what is wrong with an installation: one look, many checks
``install``     the charts' rendered manifests, applied without helm
``cli``         the `airunway` command

Beside this distribution: ``airunway-testing`` (a control plane, faults, the sandbox, conformance; never imported from
here), the providers, and a simulator for each.
"""

__version__ = "0.1.0"
