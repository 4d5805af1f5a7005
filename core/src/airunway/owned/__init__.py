"""Makes the objects that an owner has: plans, create-only applies, deletions, conflicts and fights.

Providers and parts use it alike. Example: the gateway part completes an HTTPRoute (`objects.complete`), compares it with
the live objects (`plan.plan_of`) and carries the steps out (`apply.apply_objects`). Nothing is imported here:
`objects` is used where no client may be loaded.
"""
