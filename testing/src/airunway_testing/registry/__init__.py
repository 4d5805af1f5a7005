"""A local container registry for tests and the sandbox: the OCI distribution API for reading, with faults to switch on.

* `server`: `container_registry([...])`, catalog, tags in pages, manifests and indexes, configurations, tokens;
* `model_image`: the program of its images, which a discovery Job starts;
* `faults`: what a test makes it do wrong, for each kind of request and repository.
"""
