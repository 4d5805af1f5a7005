"""Model templates: which one a deployment uses, what it gives, and the effective spec. Pure (docs/catalogue.md).

What a template gives is in `airunway.templates.contribution`, apart: it needs `artifacts`, and the views do not.
"""
