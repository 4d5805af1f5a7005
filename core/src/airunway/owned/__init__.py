"""Makes the objects that an owner has: plans, create-only applies, deletions, conflicts and fights.

Providers and parts use it alike. Example: the gateway part completes an HTTPRoute (`objects.complete`), and has it
compared with the live objects and written (`apply.apply_objects`). Nothing is imported here: `objects` is used where no
client may be loaded.
"""
