"""What a provider is held against: the same checks for every one, ours and anybody's (docs/providers/contract.md).

``fields``   every field of a deployment changes what is written, or is refused, or is named
``digests``  what a released transformer writes stays as it is
"""
