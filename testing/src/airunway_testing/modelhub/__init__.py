"""Local servers of model weights for tests and the sandbox: the hub of Hugging Face, and S3.

* `hub`: `model_hub([...])`, revisions, trees, resolve with redirects to a second host, gated and private repositories;
* `s3`: `object_store({...})`, ListObjectsV2, GetObject, HeadObject, signatures;
* `serving`: what both share: file contents, faults that are switched per file and count, and the record of requests.
"""
